package store

import (
	"reflect"
	"testing"
)

// TestUnknownMembersThatNameAField: encoding/json reads members into a field whose name has another case or escaped
// letters. Kept behind the field, they would undo each change of it.
func TestUnknownMembersThatNameAField(t *testing.T) {
	t.Parallel()
	type record struct {
		Meta
		Name string `json:"name"`
	}
	u := newUnknown(reflect.TypeFor[record]())
	for body, want := range map[string]string{
		`{}`: "", `{"name":"a","created_at":1,"updated_at":2}`: "",
		`{"name":"a","Name":"b","NAME":"c"}`:                     "",
		`{"n\u0061me":"a","n\u0062me":"b"}`:                      `,"n\u0062me":"b"`,
		`{"names":1,"nam":{"name":2},"name":"a","":[{"x":"}"}]}`: `,"names":1,"nam":{"name":2},"":[{"x":"}"}]`,
	} {
		if got := u.of([]byte(body)); got != want {
			t.Errorf("%s: got %s, want %s", body, got, want)
		}
	}
}
