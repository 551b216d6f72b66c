package bundle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"tenantry/backends/store"
	"tenantry/internal/fault"
	"tenantry/internal/request"
)

// rooms notes the room that is asked for, and has none beyond most.
type rooms struct{ asked, most int64 }

var errNoRoom = errors.New("no room")

func (r *rooms) Hold(_ context.Context, more int64) error {
	if r.asked += more; r.asked > r.most {
		return errNoRoom
	}
	return nil
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

// TestExport_HoldsLittle: large records are written as they are read, and not hundreds of them at once.
func TestExport_HoldsLittle(t *testing.T) {
	if testing.Short() {
		t.Skip("what it writes is of half a MB each")
	}
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	const many = 24
	bundle := `{"kind":"contact_field","key":"long","title":"Long","type":"LongText"}` + "\n"
	for i := range many {
		bundle += fmt.Sprintf(`{"kind":"contact","external_id":"%d","fields":{"long":"%s"}}`+"\n", i, strings.Repeat("x", store.BatchBytes))
	}
	w.mustLoad(acme, bundle)
	r := &request.Request{Room: &rooms{}}
	var at []int64 // questions so far with each line
	_, err := w.service.Export(request.With(t.Context(), r), acme, writerFunc(func(line []byte) (int, error) {
		if bytes.HasPrefix(line, []byte(`{"kind":"contact",`)) {
			at = append(at, r.Calls())
		}
		return len(line), nil
	}), ExportOptions{})
	if err != nil || len(at) != many {
		t.Fatalf("%d lines, %v", len(at), err)
	}
	for i := 2; i < many; i++ {
		if at[i] == at[i-2] {
			t.Fatalf("lines %d to %d were held together: questions at each line %v", i-2, i, at)
		}
	}
}

// TestExport_FindsRoomForDefinitions: what an export for a request learns of definitions is held in the room of that,
// found before the first line; and no more than an import would take. The operator's own exports have no bound.
func TestExport_FindsRoomForDefinitions(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	acme := w.org("acme")
	for i := range 8 {
		w.mustLoad(acme, object(fmt.Sprintf("o%d", i), 400))
	}
	export := func(ctx context.Context) (lines int, err error) {
		_, err = w.service.Export(ctx, acme, writerFunc(func(p []byte) (int, error) { lines++; return len(p), nil }), ExportOptions{})
		return lines, err
	}
	room := &rooms{most: 1 << 40}
	if _, err := export(request.With(t.Context(), &request.Request{Room: room})); err != nil || room.asked < 8*400*5*20/definedCopies {
		t.Errorf("room for %d bytes, %v", room.asked, err)
	}
	if lines, err := export(request.With(t.Context(), &request.Request{Room: &rooms{}})); !errors.Is(err, errNoRoom) || lines > 0 {
		t.Errorf("without room: %d lines, %v", lines, err)
	}
	w.service.defined = 100 << 10
	var wrong *fault.Error
	if lines, err := export(request.With(t.Context(), &request.Request{Room: room})); !errors.As(err, &wrong) || lines > 0 {
		t.Errorf("of more definitions than an import takes: %d lines, %v", lines, err)
	}
	if _, err := w.service.Export(t.Context(), acme, io.Discard, ExportOptions{}); err != nil {
		t.Errorf("by the operator: %v", err)
	}
}
