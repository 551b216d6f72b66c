package webhooks

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// waitingOf returns events that wait, as position:record/tries@next.
func waitingOf(texts ...string) (all []Waiting) {
	for _, text := range texts {
		var n, tries int
		var record string
		var next int64
		words := strings.NewReplacer(":", " ", "/", " ", "@", " ").Replace(text)
		if _, err := fmt.Sscanf(words, "%d %s %d %d", &n, &record, &tries, &next); err != nil {
			panic(err)
		}
		all = append(all, Waiting{ID: fmt.Sprintf("log-%d", n), Record: record, Tries: tries, Next: next})
	}
	return all
}

func idsOf(all []Waiting) string {
	var ids []string
	for _, w := range all {
		ids = append(ids, strings.TrimPrefix(w.ID, "log-"))
	}
	return strings.Join(ids, " ")
}

func TestProgress_due(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		waiting []Waiting
		due     string
		held    string
	}{
		{nil, "", ""},
		{waitingOf("1:a/0@0", "2:b/0@0", "3:a/0@0"), "1 2 3", ""},
		{waitingOf("1:a/1@101", "2:b/1@100", "3:a/0@0", "4:b/0@0"), "2 4", "a"},
		{waitingOf("1:a/1@5", "2:b/1@1", "3:c/1@4", "4:d/2@2", "5:e/3@3", "6:f/0@0", "7:a/0@0"), "2 3 4 5 6", "a"},
	} {
		p := Progress{Waiting: c.waiting}
		due, held := p.due(100)
		if names := strings.Join(slices.Sorted(maps.Keys(held)), " "); idsOf(due) != c.due || names != c.held {
			t.Errorf("%+v: got %q due and %q held, want %q and %q", c.waiting, idsOf(due), names, c.due, c.held)
		}
	}
	many := Progress{}
	for i := range mostDue + 2 {
		many.Waiting = append(many.Waiting, waitingOf(fmt.Sprintf("%d:r%d/0@0", i+1, i%(mostDue+1)))...)
	}
	due, held := many.due(100)
	if len(due) != mostDue || !held["r0"] || !held[fmt.Sprint("r", mostDue)] || len(held) != 2 {
		t.Errorf("got %d due and %v held, want the first %d, and the records of the others", len(due), held, mostDue)
	}
}

func TestProgress_again(t *testing.T) {
	t.Parallel()
	p := Progress{Cursor: "log-9", Waiting: waitingOf("3:a/2@50", "7:b/0@0"), AwaySince: 1, Tries: 3, NextTry: 99}
	p.again(20)
	if p.AgainFrom != 20 || len(p.Waiting) > 0 || idsOf(p.Later) != "3 7" || p.Later[0].Tries > 0 || p.NextTry > 0 || p.Tries > 0 {
		t.Errorf("got %+v, want what waited to come later, as if it was not tried", p)
	}
	p.AgainAfter, p.Waiting = "somewhere", waitingOf("5:c/1@60")
	p.again(30)
	if p.AgainFrom != 20 || p.AgainAfter != "" || idsOf(p.Waiting) != "5" || idsOf(p.Later) != "3 7" {
		t.Errorf("got %+v, want all since the earlier moment", p)
	}
	if !p.remove("log-7") || p.remove("log-8") || idsOf(p.Later) != "3" {
		t.Errorf("got %+v, want the event removed that was delivered", p)
	}
	p.Waiting = append(p.Waiting, waitingOf("3:a/1@70")...)
	p.sentAgain()
	if p.AgainFrom != 0 || p.Later != nil || idsOf(p.Waiting) != "3 5" {
		t.Errorf("got %+v, want what waits once, in the order of the log", p)
	}
}

func TestProgress_forget(t *testing.T) {
	t.Parallel()
	p := Progress{Cursor: "log-9", Waiting: waitingOf("3:a/0@0", "4:b/0@0", "7:b/0@0"), Later: waitingOf("2:a/0@0", "8:c/0@0")}
	p.Waiting = append(p.Waiting, Waiting{ID: "former-100"})
	p.forget([]string{"log-4", "log-3", "former-100"})
	if idsOf(p.Waiting) != "7" || idsOf(p.Later) != "8" || p.Cursor != "log-9" {
		t.Errorf("got %+v, want what the log still has", p)
	}
}

func TestProgress_answered(t *testing.T) {
	t.Parallel()
	away := outageBegan.Milliseconds() * 2
	p := Progress{AwaySince: away, Tries: 4, NextTry: away * 9, Waiting: waitingOf("1:a/5@900000", "2:b/5@900000", "3:c/0@0")}
	p.Waiting[0].Since, p.Waiting[1].Since = 1, away-1
	p.answered()
	want := waitingOf("1:a/5@900000", "2:b/1@0", "3:c/0@0")
	want[0].Since, want[1].Since = 1, away-1
	if !slices.Equal(p.Waiting, want) || p.AwaySince+p.NextTry > 0 || p.Tries > 0 {
		t.Errorf("got %+v, want %+v, and the outage over", p, want)
	}
}

// TestRound_settle: how long a receiver rests that accepts nothing of what is new to it.
func TestRound_settle(t *testing.T) {
	t.Parallel()
	now := time.UnixMilli(1_800_000_000_000)
	m := &Module{Deps: Deps{Now: func() time.Time { return now }}}
	for name, c := range map[string]struct {
		before, status, tries int // rounds of the event before, the answer, rounds without acceptance before
		rest                  time.Duration
	}{
		"first failure":         {0, 500, 0, time.Second},
		"away for long":         {0, 500, 9, longestRest},
		"refuses all":           {0, 422, 9, refusedRest},
		"refused before":        {3, 500, 9, shortRest},
		"too many requests":     {0, 429, 9, longestRest},
		"no answer, after many": {0, 0, 9, longestRest},
	} {
		r := &round{m: m, p: &Progress{Tries: c.tries}, items: []item{{
			outcome: outcome{status: c.status, err: "refused"}, tries: 1, event: Event{ID: "log-1", Record: "a"},
			waits: Waiting{ID: "log-1", Record: "a", Tries: c.before},
		}}}
		r.settle()
		if got := time.UnixMilli(r.p.NextTry).Sub(now); got != c.rest || len(r.p.Waiting) != 1 || r.p.Waiting[0].Tries != c.before+1 {
			t.Errorf("%s: rests %v with %+v, want %v", name, got, r.p.Waiting, c.rest)
		}
	}
}
