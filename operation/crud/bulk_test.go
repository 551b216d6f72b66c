package crud_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"tenantry/backends/enginetest"
	"tenantry/internal/request"
	"tenantry/operation/crud"
	"tenantry/operation/schematest"
)

// rooms notes the room that is asked for, and has none beyond most.
type rooms struct{ asked, most int64 }

func (r *rooms) Hold(_ context.Context, more int64) error {
	if r.asked += more; r.asked > r.most {
		return errors.New("no room")
	}
	return nil
}

// TestBulk_ChangesLargeRecordsInParts: a bulk that names large records holds some of them at a time, and carries out
// all of it, with the results in the order in which they were sent.
func TestBulk_ChangesLargeRecordsInParts(t *testing.T) {
	t.Parallel()
	const many, long = 30, 60_000
	module := notesOf(0)
	module.Bulk = true
	b := bench{schematest.Open(t, enginetest.Open(t), module)}
	var ids, changes []string
	for i := range many {
		made := b.do(t, "create", "", "", fmt.Sprintf(`{"heading":"note %d","extra":"%s"}`, i, strings.Repeat("x", long)), 200)
		ids = append(ids, made["id"].(string))
		changes = append(changes, fmt.Sprintf(`{"heading":"note %d","mood":"good"}`, i))
	}
	changes = append(changes, `{"heading":"note 0","mood":"bad"}`, `{"heading":"note new","mood":"none"}`)
	room := &rooms{most: many * long / 2} // of all of them that would not do
	a := b.Do(t, schematest.Request{
		Operation: "notes.bulk", Body: `{"records":[` + strings.Join(changes, ",") + `]}`, Of: &request.Request{Room: room},
	})
	var told crud.Bulk
	if err := json.Unmarshal([]byte(a.Data), &told); err != nil || a.Code != 200 {
		t.Fatalf("%d %s %.300s, asked for room of %d bytes", a.Code, a.Message, a.Data, room.asked)
	}
	if told.Updated != many || told.Failed != 2 || told.Created != 0 || len(told.Results) != many+2 {
		t.Errorf("bulk = %+v, want %d updated and 2 failed", told, many)
	}
	for i, r := range told.Results {
		switch {
		case r.Index != i || i < many && (r.ID != ids[i] || len(r.Errors) > 0):
			t.Errorf("result %d: %+v", i, r)
		case i >= many && len(r.Errors) == 0:
			t.Errorf("result %d is not refused: %+v", i, r)
		}
	}
	for _, id := range ids {
		if got := b.do(t, "get", id, "", "", 200); got["mood"] != "good" || len(got["extra"].(string)) != long {
			t.Errorf("%s: mood %v, %d bytes", id, got["mood"], len(got["extra"].(string)))
		}
	}
}
