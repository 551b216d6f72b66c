package middleware

import (
	"net/netip"
	"testing"
	"time"

	"tenantry/operation"
	"tenantry/tenants"
)

// TestFloodIsCountedNotWritten: records over the limit of a minute are counted, and the next record has their number.
func TestFloodIsCountedNotWritten(t *testing.T) {
	t.Parallel()
	f := &flood{}
	now := time.Unix(6000, 0)
	written := 0
	for range 10 * floodPerMinute {
		if write, dropped := f.admit(now, floodPerMinute); write {
			written++
			if dropped != 0 {
				t.Fatalf("dropped = %d, want 0", dropped)
			}
		}
	}
	if written != floodPerMinute {
		t.Errorf("written = %d, want %d", written, floodPerMinute)
	}
	write, dropped := f.admit(now.Add(time.Minute), floodPerMinute)
	if !write || dropped != 9*floodPerMinute {
		t.Errorf("next minute: admit = %v, %d, want true, %d", write, dropped, 9*floodPerMinute)
	}
	if _, dropped := f.admit(now.Add(time.Minute), floodPerMinute); dropped != 0 {
		t.Errorf("dropped = %d in the second record, want 0", dropped)
	}
}

// refusal returns a refused call of an anonymous caller that began at the given time.
func refusal(p *Pipeline, from string, began time.Time) *exchange {
	op := &operation.Row{Name: "things.delete"}
	x := &exchange{p: p, op: op, call: operation.NewCall(op, nil), started: began}
	x.call.Tenant, x.call.Remote = &tenants.Tenant{}, netip.MustParseAddr(from)
	return x
}

// TestFloodOfSlowRequests: refusals of requests that began in the minute before do not reset the count.
func TestFloodOfSlowRequests(t *testing.T) {
	t.Parallel()
	p, written := New(Options{}), 0
	for n := range 400 {
		if refusal(p, "192.0.2.1", time.Now().Add(-time.Duration(n%2)*time.Minute)).noteFlood(&operation.Problem{}) {
			written++
		}
	}
	if written > 2*floodPerAddress { // another minute may begin meanwhile
		t.Errorf("records of 400 refusals of one address = %d, want at most %d", written, 2*floodPerAddress)
	}
}

// TestFloodCountsUnrecordedOfAddress: the next record of an address has the number of its unrecorded refusals, even if
// other addresses used up the minute in between.
func TestFloodCountsUnrecordedOfAddress(t *testing.T) {
	t.Parallel()
	p, began := New(Options{}), time.Now()
	const dropped = 10
	for range floodPerAddress + dropped {
		refusal(p, "192.0.2.1", began).noteFlood(&operation.Problem{})
	}
	mine := floodOf(p.addresses, source{operation: "things.delete", address: netip.MustParseAddr("192.0.2.1")})
	all := floodOf(p.strangers, source{operation: "things.delete"})
	mine.minute-- // it has passed
	for _, other := range []string{"192.0.2.2", "192.0.2.3"} {
		for range floodPerAddress {
			refusal(p, other, began).noteFlood(&operation.Problem{})
		}
	}
	if refusal(p, "192.0.2.1", began).noteFlood(&operation.Problem{}) {
		t.Fatal("a record was written although other addresses used up the minute")
	}
	all.minute--
	x := refusal(p, "192.0.2.1", began)
	ok := x.noteFlood(&operation.Problem{})
	note := x.call.AuditNote
	if !ok || note["refused_unrecorded_of_address"] != "10" || note["refused_unrecorded"] != "1" {
		t.Errorf("noteFlood = %t with %v, want true with 10 of the address and 1 of others", ok, note)
	}
}
