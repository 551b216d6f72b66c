package middleware

import (
	"net/netip"
	"testing"
	"time"

	"tenantry/operation"
	"tenantry/tenants"
)

func TestFloodIsCountedNotWritten(t *testing.T) {
	t.Parallel()
	f := &flood{}
	now := time.Unix(6000, 0)
	written := 0
	for range 10 * floodPerMinute {
		if write, dropped := f.admit(now, floodPerMinute); write {
			written++
			if dropped != 0 {
				t.Fatalf("%d not written before anything was", dropped)
			}
		}
	}
	if written != floodPerMinute {
		t.Errorf("%d written", written)
	}
	write, dropped := f.admit(now.Add(time.Minute), floodPerMinute)
	if !write || dropped != 9*floodPerMinute {
		t.Errorf("next minute: %v, %d not written", write, dropped)
	}
	if _, dropped := f.admit(now.Add(time.Minute), floodPerMinute); dropped != 0 {
		t.Errorf("told twice: %d", dropped)
	}
}

// refusal is a refused call of a stranger, that began then.
func refusal(p *Pipeline, from string, began time.Time) *exchange {
	op := &operation.Row{Name: "things.delete"}
	x := &exchange{p: p, op: op, call: operation.NewCall(op, nil), started: began}
	x.call.Tenant, x.call.Remote = &tenants.Tenant{}, netip.MustParseAddr(from)
	return x
}

// TestFloodOfSlowRequests: those that began in the minute before begin no other one, however they mix with quick ones.
func TestFloodOfSlowRequests(t *testing.T) {
	t.Parallel()
	p, written := New(Options{}), 0
	for n := range 400 {
		if refusal(p, "192.0.2.1", time.Now().Add(-time.Duration(n%2)*time.Minute)).noteFlood(&operation.Problem{}) {
			written++
		}
	}
	if written > 2*floodPerAddress { // another minute may begin meanwhile
		t.Errorf("%d of 400 refusals of one address have a record", written)
	}
}

// TestFloodCountsWhatNoRecordTold: what an address was refused unrecorded is told by its next record, also where others
// have used the minute up when it comes.
func TestFloodCountsWhatNoRecordTold(t *testing.T) {
	t.Parallel()
	p, began := New(Options{}), time.Now()
	const dropped = 10
	for range floodPerAddress + dropped {
		refusal(p, "192.0.2.1", began).noteFlood(&operation.Problem{})
	}
	mine, all := floodOf(p.addresses, source{0, "things.delete", netip.MustParseAddr("192.0.2.1")}), floodOf(p.strangers, source{operation: "things.delete"})
	mine.minute-- // it has passed
	for _, other := range []string{"192.0.2.2", "192.0.2.3"} {
		for range floodPerAddress {
			refusal(p, other, began).noteFlood(&operation.Problem{})
		}
	}
	if refusal(p, "192.0.2.1", began).noteFlood(&operation.Problem{}) {
		t.Fatal("written, though others have used the minute up")
	}
	all.minute--
	x := refusal(p, "192.0.2.1", began)
	if !x.noteFlood(&operation.Problem{}) || x.call.AuditNote["refused_unrecorded_of_address"] != "10" || x.call.AuditNote["refused_unrecorded"] != "1" {
		t.Errorf("the next record has %v", x.call.AuditNote)
	}
}
