package scan_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"tenantry/internal/scan"
)

func TestReader(t *testing.T) {
	t.Parallel()
	const most = 300 << 10
	long := strings.Repeat("x", most)
	for name, c := range map[string]struct {
		in   string
		want []string // "!" for a line that is too long
	}{
		"empty":            {"", nil},
		"no feed at end":   {"a\nb", []string{"a", "b"}},
		"blank lines":      {"\n\na\n", []string{"", "", "a"}},
		"the longest":      {long + "\nb\n", []string{long, "b"}},
		"one byte more":    {"a\n" + long + "x\nb", []string{"a", "!", "b"}},
		"far too long":     {long + long + long + "\nb", []string{"!", "b"}},
		"too long, at end": {"a\n" + long + "x", []string{"a", "!"}},
	} {
		r := scan.New(strings.NewReader(c.in), most)
		var got []string
		for {
			line, err := r.Next()
			if errors.Is(err, scan.ErrTooLong) {
				got = append(got, "!")
				continue
			}
			if err != nil {
				break
			}
			got = append(got, string(line))
		}
		if !reflect.DeepEqual(got, c.want) || r.Offset() != int64(len(c.in)) {
			t.Errorf("%s: got %d lines and %d bytes, want %d and %d", name, len(got), r.Offset(), len(c.want), len(c.in))
		}
	}
}
