package mongo

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/event"
	"go.mongodb.org/mongo-driver/v2/mongo"
)

// health is what the library tells of the servers while it watches them. A call that gives up says
// that none could be found in time; why, only this knows.
type health struct {
	set     string      // the replica set that the address names
	refused atomic.Bool // user and password, by a server that answers

	mu sync.Mutex
	// topology is what the library takes the deployment for.
	topology event.TopologyDescription
	// primary is the server that takes writes, by its election, since that time; empty: there is none.
	primary string
	elected time.Time
	// reason is why a server could not be used last, with advice; both empty while one can be.
	reason, advice string
}

func (h *health) monitor() *event.ServerMonitor {
	return &event.ServerMonitor{
		TopologyDescriptionChanged: func(e *event.TopologyDescriptionChangedEvent) {
			h.mu.Lock()
			defer h.mu.Unlock()
			h.topology = e.NewDescription
			if p := h.elects(); p != h.primary {
				h.primary, h.elected = p, time.Now()
			}
			if h.usable() {
				h.reason, h.advice = "", ""
			}
		},
		ServerHeartbeatFailed: func(e *event.ServerHeartbeatFailedEvent) {
			address, _, _ := strings.Cut(e.ConnectionID, "[")
			if reason, advice := whyNot(address, e.Failure); reason != "" {
				h.note(reason, advice)
			}
		},
		ServerHeartbeatSucceeded: func(e *event.ServerHeartbeatSucceededEvent) {
			if s := e.Reply; h.set != "" && s.SetName != h.set && s.Kind != "Mongos" {
				its := "no replica set"
				if s.SetName != "" {
					its = strconv.Quote(s.SetName)
				}
				h.note(fmt.Sprintf("%s belongs to %s, and the address asks for the replica set %q", s.Addr, its, h.set), "correct replicaSet in the address")
			}
		},
	}
}

func (h *health) note(reason, advice string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reason, h.advice = clip(reason), advice
}

// accepted notes whether user and password are accepted, as far as the outcome of a call tells.
func (h *health) accepted(err error) {
	var server mongo.ServerError
	refused := errors.As(err, &server) && server.HasErrorCode(codeSignIn)
	if refused || err == nil && h.refused.Load() {
		h.refused.Store(refused)
	}
}

// usable reports whether some server takes writes. The lock is held.
func (h *health) usable() bool {
	for _, s := range h.topology.Servers {
		switch s.Kind {
		case "Standalone", "RSPrimary", "Mongos", "LoadBalancer":
			return true
		}
	}
	return false
}

// elects returns the server that takes writes and its election; nothing where there is none, or no replica set. The
// lock is held.
func (h *health) elects() string {
	for _, s := range h.topology.Servers {
		if s.Kind == "RSPrimary" {
			return s.Addr.String() + " " + s.ElectionID.Hex()
		}
	}
	return ""
}

// Elected returns since when the primary of the replica set is the same, or there has been none.
func (e *Engine) Elected() time.Time {
	e.health.mu.Lock()
	defer e.health.mu.Unlock()
	return e.health.elected
}

// whyNot returns what an operator can mend of a failure on the way to a server, or nothing.
func whyNot(address string, err error) (reason, advice string) {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		other     x509.CertificateInvalidError
		record    tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &authority):
		return "the certificate of " + address + " is not trusted: nobody that is known has signed it", "name the file of the authority in the address: tlsCAFile"
	case errors.As(err, &host):
		return "the certificate of " + address + " is for other names", "use a name in the address that the certificate has"
	case errors.As(err, &other):
		return "the certificate of " + address + " is not trusted: " + other.Error(), "renew it"
	case errors.As(err, &record):
		return address + " does not speak TLS", "leave tls=true out of the address, or switch TLS on in the server"
	}
	return "", ""
}

// because returns why no server can be used, as far as that is known.
func (h *health) because(err error) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.reason != "" {
		return h.reason
	}
	return clip(err.Error())
}

func clip(text string) string {
	if len(text) > maxCause {
		return strings.ToValidUTF8(text[:maxCause], "") + "..."
	}
	return text
}

// Inspect tells what the servers are, why none can be used where that is so, how far an upgrade is, and which
// documents are odd. Only for those of others it asks the server, where one can be used.
func (e *Engine) Inspect(ctx context.Context) []driver.Finding {
	found := slices.Concat(e.health.findings(), e.unguarded(), e.stale())
	if slices.ContainsFunc(found, func(f driver.Finding) bool { return f.Subject == "server" && f.Verdict == driver.FindingWrong }) && e.Refusing() {
		return found
	}
	return append(found, e.foreign(ctx)...)
}

// findings tells of the servers.
func (h *health) findings() []driver.Finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	const subject = "server"
	var found []driver.Finding
	wrong := func(says, advice string) {
		found = append(found, driver.Finding{Subject: subject, Verdict: driver.FindingWrong, Says: says, Advice: advice})
	}
	if h.refused.Load() {
		wrong("the user or the password of the address is not accepted", "correct the address; reserved characters in it are percent-encoded, and authSource names where the user was made")
	}
	if h.reason != "" {
		wrong(h.reason, h.advice)
	}
	kinds := map[string]int{}
	for _, s := range h.topology.Servers {
		kinds[s.Kind]++
	}
	switch {
	case kinds["Standalone"] > 0:
		wrong("is a standalone server: a write that it has acknowledged can be lost with it, and it repeats none whose answer was lost", "make it a replica set, of three members where it matters")
	case kinds["Mongos"] > 0:
		found = append(found, driver.Finding{Subject: subject, Says: fmt.Sprintf("a sharded cluster; routers: %d", kinds["Mongos"])})
	case kinds["RSPrimary"]+kinds["RSSecondary"] > 0 && !h.usable():
		wrong(fmt.Sprintf("no member of the replica set takes writes; secondaries: %d, not reached: %d", kinds["RSSecondary"], kinds["Unknown"]), "see whether most of its members run and reach each other")
	case kinds["RSPrimary"] > 0:
		f := driver.Finding{Subject: subject, Says: fmt.Sprintf("a replica set with its primary; secondaries: %d", kinds["RSSecondary"])}
		if n := kinds["Unknown"]; n > 0 {
			f.Verdict, f.Says, f.Advice = driver.FindingWarning, f.Says+fmt.Sprintf(", not reached: %d", n), "see whether they run"
		}
		found = append(found, f)
	}
	return found
}
