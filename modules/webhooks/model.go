package webhooks

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"tenantry/backends/record"
	"tenantry/backends/store"
)

// Hook is an address to which the events of an organization are sent.
type Hook struct {
	store.Meta
	Name    string   `json:"name" rule:"required max=200 format=label unique" use:"filter named" doc:"Name of the webhook." example:"CRM"`
	URL     string   `json:"url" rule:"required max=2000 format=line" doc:"Where events are sent: an https address without user name, password and fragment." ask:"Address|Where events are sent, such as https://crm.example.com/tenantry." example:"https://crm.example.com/tenantry"`
	Kinds   []string `json:"kinds,omitempty" rule:"max=200 each=100" doc:"What is sent: kinds of records (contact, or contact.*), or what happened to them (contact.created). Empty: all that the account may read." ask:"Events|Such as contact.created or submission.*; all if there is none." example:"[\"contact.created\"]"`
	Account string   `json:"account" rule:"required format=id ref=service_account" doc:"Identifier of the service account whose rights decide what is sent." ask:"Service account" example:"665f1c2ab4d3e2f1a0b9c8d7"`
	Paused  bool     `json:"paused,omitempty" use:"computed filter"`
	Reason  string   `json:"paused_reason,omitempty" use:"computed"`
	// Signing and Former name the secrets, see secretOf. Former is valid until FormerUntil, in Unix milliseconds. An
	// imported webhook has none, and sends nothing until its secret is rotated.
	Signing     string `json:"signing,omitempty" use:"computed hidden local"`
	Former      string `json:"former,omitempty" use:"computed hidden local"`
	FormerUntil int64  `json:"former_until,omitempty" use:"computed hidden local"`
	// Begin is the cursor of the first event that is sent.
	Begin string `json:"begin,omitempty" use:"computed hidden local"`
}

// idle reports whether nothing is sent, and why.
func (h *Hook) idle() (reason string, idle bool) {
	if h.Signing == "" {
		return imported, true
	}
	return h.Reason, h.Paused
}

// Why a webhook is paused.
const (
	imported    = "It was imported, and has no secret yet: rotate its secret to begin."
	byCaller    = "Somebody paused it."
	accountGone = "The service account was deleted or is not active."
	logGone     = "Events were lost: the event log no longer goes back to the last delivery, or begins anew. " +
		"Resume to go on with what happens from now on, and read the lists anew."
	waitGone = "Events were lost: they waited for longer than the event log keeps them. " +
		"Resume to go on with the others, and read the lists anew."
	receiverGone = "The receiver answered 410 Gone."
	receiverAway = "The receiver has accepted no delivery of an event for three days."
)

// Progress says how far the deliveries of the webhook with the same identifier have come. Times are Unix milliseconds.
type Progress struct {
	store.Meta
	Cursor  string    `json:"cursor"`            // all events up to it were delivered, or wait
	Waiting []Waiting `json:"waiting,omitempty"` // in the order of the log, about mostWaiting at most
	// The receiver has accepted nothing since AwaySince, in so many rounds with events that it was not sent before; nothing
	// is sent before NextTry.
	AwaySince int64 `json:"away_since,omitempty"`
	Tries     int   `json:"tries,omitempty"`
	NextTry   int64 `json:"next_try,omitempty"`
	// What was last tried at AgainFrom or later is to be sent again, in the order of the log, before what follows Cursor. It is
	// done up to the note AgainAfter; 0: nothing is.
	AgainFrom  int64  `json:"again_from,omitempty"`
	AgainAfter string `json:"again_after,omitempty"`
	// Later are what waited when that was asked for: it comes after it.
	Later []Waiting `json:"later,omitempty"`
}

// Waiting is an event that was read and has not been delivered. It waits for earlier ones of its record, too.
type Waiting struct {
	ID     string `json:"id"`
	Record string `json:"record"`
	Since  int64  `json:"since,omitempty"` // when the receiver first did not accept it; 0: it was not tried
	Tries  int    `json:"tries,omitempty"` // rounds in which the receiver did not accept it
	Next   int64  `json:"next,omitempty"`  // when it is tried again
}

// due returns what waits and may be sent now, mostDue events at most, and the records of which something must wait longer. Of
// records of which an event was refused there are at most mostRefused, those whose time came first.
func (p *Progress) due(now int64) (due []Waiting, held map[string]bool) {
	held = map[string]bool{}
	seen := map[string]bool{}
	var refused []Waiting
	for _, w := range p.Waiting {
		if !seen[w.Record] && w.Next > now {
			held[w.Record] = true
		} else if !seen[w.Record] && w.Tries > 0 {
			refused = append(refused, w)
		}
		seen[w.Record] = true
	}
	slices.SortStableFunc(refused, func(a, b Waiting) int { return cmp.Compare(a.Next, b.Next) })
	for _, w := range refused[min(len(refused), mostRefused):] {
		held[w.Record] = true
	}
	for _, w := range p.Waiting {
		if len(due) == mostDue {
			held[w.Record] = true
		} else if !held[w.Record] {
			due = append(due, w)
		}
	}
	return due, held
}

// next returns when what waits can be sent; 0 if nothing waits.
func (p *Progress) next() (at int64) {
	seen := map[string]bool{}
	for _, w := range p.Waiting {
		if !seen[w.Record] && (len(seen) == 0 || w.Next < at) {
			at = w.Next
		}
		seen[w.Record] = true
	}
	if len(seen) == 0 {
		return 0
	}
	return max(at, p.NextTry, 1)
}

// failing returns since when the receiver does not accept an event, and when it is tried again; 0 if it accepts all.
func (p *Progress) failing() (since, next int64) {
	for _, w := range slices.Concat(p.Waiting, p.Later) {
		if w.Since > 0 && (since == 0 || w.Since < since) {
			since = w.Since
		}
		if w.Next > 0 && (next == 0 || w.Next < next) {
			next = w.Next
		}
	}
	if since == 0 {
		return 0, 0
	}
	return since, max(next, p.NextTry)
}

// hurry has what waits be tried as if for the first time.
func (p *Progress) hurry() {
	for _, all := range [][]Waiting{p.Waiting, p.Later} {
		for i := range all {
			all[i].Since, all[i].Tries, all[i].Next = 0, 0, 0
		}
	}
	p.answered()
}

// answered notes that the receiver is there. What it refused because it was not is tried again at once, but as what was
// refused before.
func (p *Progress) answered() {
	for i := range p.Waiting {
		if w := &p.Waiting[i]; p.AwaySince > 0 && w.Since >= p.AwaySince-outageBegan.Milliseconds() {
			w.Tries, w.Next = min(w.Tries, 1), 0
		}
	}
	p.AwaySince, p.Tries, p.NextTry = 0, 0, 0
}

// again has what was last tried at a moment or later be sent again. What waits, comes after it.
func (p *Progress) again(from int64) {
	if p.AgainFrom == 0 {
		p.Later, p.Waiting = p.Waiting, nil
	} else {
		from = min(from, p.AgainFrom)
	}
	p.AgainFrom, p.AgainAfter = max(from, 1), ""
	p.hurry()
}

// forget removes events that the log lacks, which it therefore lacks up to the last of them.
func (p *Progress) forget(gone []string) {
	if len(gone) == 0 {
		return
	}
	last := int64(0)
	for _, id := range gone {
		if logOf(id) == logOf(p.Cursor) {
			last = max(last, position(id))
		}
	}
	lost := func(w Waiting) bool { return logOf(w.ID) != logOf(p.Cursor) || position(w.ID) <= last }
	p.Waiting, p.Later = slices.DeleteFunc(p.Waiting, lost), slices.DeleteFunc(p.Later, lost)
}

// remove removes an event that was delivered from what waits. It reports whether it was there.
func (p *Progress) remove(event string) bool {
	n := len(p.Waiting) + len(p.Later)
	is := func(w Waiting) bool { return w.ID == event }
	p.Waiting, p.Later = slices.DeleteFunc(p.Waiting, is), slices.DeleteFunc(p.Later, is)
	return len(p.Waiting)+len(p.Later) < n
}

// sentAgain notes that all was sent again.
func (p *Progress) sentAgain() {
	p.AgainFrom, p.AgainAfter = 0, ""
	for _, w := range p.Later {
		if !slices.ContainsFunc(p.Waiting, func(one Waiting) bool { return one.ID == w.ID }) {
			p.Waiting = append(p.Waiting, w)
		}
	}
	p.Later = nil
	p.sort()
}

func (p *Progress) sort() {
	slices.SortFunc(p.Waiting, func(a, b Waiting) int { return cmp.Compare(position(a.ID), position(b.ID)) })
}

// Delivery is a note of what was sent to a webhook for one event.
type Delivery struct {
	store.Meta        // CreatedAt is when it was first tried
	Webhook    string `json:"webhook"`
	Event      Event  `json:"event"`
	State      string `json:"state"` // delivered or failed
	Tries      int    `json:"tries"`
	Status     int    `json:"status,omitempty"` // of the last answer; 0: there was none
	Answer     string `json:"answer,omitempty"` // its beginning
	Error      string `json:"error,omitempty"`
	TookMS     int64  `json:"took_ms"`
	LastAt     int64  `json:"last_at"` // when it was last tried, in Unix milliseconds
}

// The states of a Delivery.
const (
	delivered = "delivered"
	failed    = "failed"
)

// Kinds are the records of this module.
type Kinds struct {
	Hooks      *record.Of[Hook]
	Progress   *store.Kind[Progress]
	Deliveries *store.Kind[Delivery]
}

// mostHooks is how many webhooks an organization may have.
const mostHooks = 100

func newKinds() Kinds {
	return Kinds{
		Hooks: record.Must(record.Options[Hook]{
			Traits: record.Traits{Name: "webhook", Called: "name", Most: mostHooks},
			Spec: store.Spec{
				Name: "webhooks", Indexes: []store.Index{{Fields: []string{"created_at"}}},
				Access: []store.Access{{Where: []string{"created_at"}}},
			},
		}),
		Progress: store.Must[Progress](store.Spec{Name: "webhook_progress", Uncounted: true}),
		Deliveries: store.Must[Delivery](store.Spec{
			Name: "webhook_deliveries", Uncounted: true, Fields: []string{"webhook", "last_at"},
			Indexes: []store.Index{
				{Fields: []string{"webhook", "created_at"}}, {Fields: []string{"webhook", "last_at"}}, {Fields: []string{"created_at"}},
			},
			Access: []store.Access{
				{Where: []string{"webhook"}, Sort: []string{"created_at"}}, {Where: []string{"webhook", "last_at"}, Sort: []string{"last_at"}},
				{Where: []string{"created_at"}, Sort: []string{"created_at"}},
			},
		}),
	}
}

// Kept returns the kinds of the module.
func (k Kinds) Kept() []record.Kept { return []record.Kept{k.Hooks, k.Progress, k.Deliveries} }

// Notes returns the kinds that say what was sent, which no export and no restoration changes.
func (k Kinds) Notes() []record.Kept { return []record.Kept{k.Progress, k.Deliveries} }

// deliveryID returns the identifier of the note of an event that is sent to a webhook: the same at each try, and in the
// order of events.
func deliveryID(hook, event string) string { return noteID(hook, position(event)) }

func noteID(hook string, position int64) string {
	sum := sha256.Sum256([]byte(hook)) // identifiers of webhooks may differ in their beginnings alone
	return fmt.Sprintf("%x%014x", sum[:5], position)
}

const lastPosition = 1<<56 - 1

// position returns the place of an event in its log; 0 for a test.
func position(event string) int64 {
	_, number, _ := strings.Cut(event, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	if err != nil || n > lastPosition {
		return 0
	}
	return n
}

// logOf returns the log that an event or a cursor is of.
func logOf(event string) string {
	log, _, _ := strings.Cut(event, "-")
	return log
}

// before returns the cursor before an event.
func before(event string) string {
	return logOf(event) + "-" + strconv.FormatInt(max(position(event)-1, 0), 10)
}
