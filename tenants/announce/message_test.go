package announce

import (
	"slices"
	"strings"
	"testing"
)

func TestMessageRoundTrip(t *testing.T) {
	t.Parallel()
	want := message{from: instance{1, 2, 3}, number: 1 << 63, orgs: []int64{1, 1<<63 - 1, 7}}
	got, err := decode(string(want.encode()))
	if err != nil || got.from != want.from || got.number != want.number || !slices.Equal(got.orgs, want.orgs) {
		t.Errorf("got %+v, %v, want no error and got.from = %v and got.number = %v and %v",
			got, err, want.from, want.number, want.orgs)
	}
}

func malformed() map[string]string {
	good := string(message{number: 1, orgs: []int64{1}}.encode())
	many := message{number: 1, orgs: make([]int64, maxOrganizations+1)}
	for i := range many.orgs {
		many.orgs[i] = int64(i + 1)
	}
	return map[string]string{
		"empty": "", "text": "organization 5 changed", "JSON": `{"v":1,"org":5}`, "cut": good[:len(good)-1], "longer": good + "x",
		"other version": "\x02" + good[1:], "no organization": good[:headBytes], "too many": string(many.encode()),
		"organization 0":  string(message{number: 1, orgs: []int64{0}}.encode()),
		"negative":        string(message{number: 1, orgs: []int64{1, -1}}.encode()),
		"long and binary": strings.Repeat("\xff\x00", 1<<19),
	}
}

func TestMalformedMessagesAreRefused(t *testing.T) {
	t.Parallel()
	for name, text := range malformed() {
		if m, err := decode(text); err == nil {
			t.Errorf("%s was read as %+v", name, m)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, text := range malformed() {
		f.Add(text)
	}
	f.Add(string(message{number: 3, orgs: []int64{1, 2}}.encode()))
	f.Fuzz(func(t *testing.T, text string) {
		m, err := decode(text)
		if err == nil && string(m.encode()) != text {
			t.Errorf("%q is not what %+v is written as", text, m)
		}
	})
}

// A message that is missing may have named any organization.
func TestMissingMessagesInvalidateEverything(t *testing.T) {
	t.Parallel()
	d := &recorder{}
	a := &Announcer{dir: d, self: instance{9}}
	numbers := map[instance]uint64{}
	hear := func(from byte, number uint64, org int64) {
		a.handle(string(message{from: instance{from}, number: number, orgs: []int64{org}}.encode()), numbers)
	}
	hear(1, 5, 10) // the first that is heard of a replica
	hear(2, 1, 20)
	hear(1, 6, 11)
	hear(1, 6, 11) // sent twice by the client
	hear(9, 77, 12)
	if got := d.forgotten(); d.all.Load() != 0 || !slices.Equal(got, []int64{10, 20, 11, 11}) {
		t.Fatalf("forgot %v, everything %d times", got, d.all.Load())
	}
	hear(1, 8, 13)
	hear(2, 2, 21)
	if got := a.Stats(); d.all.Load() != 1 || got.Gaps != 1 || got.Heard != 6 {
		t.Errorf("everything forgotten %d times, %+v", d.all.Load(), got)
	}
	for i := range 5 * maxSenders {
		numbers[instance{3, byte(i >> 8), byte(i)}] = 1
		if i >= maxSenders {
			a.handle(string(message{from: instance{4, byte(i >> 8), byte(i)}, number: 1, orgs: []int64{1}}.encode()), numbers)
		}
	}
	if len(numbers) > 2*maxSenders {
		t.Errorf("%d senders are remembered", len(numbers))
	}
}
