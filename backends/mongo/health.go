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

// health tracks the state of the servers from the driver library's monitoring. A failed call says only that no server
// could be found in time; health has the reason.
type health struct {
	set     string      // the replica set that the address names
	refused atomic.Bool // the server rejected user and password

	mu sync.Mutex // guards the following
	// topology is the library's view of the deployment.
	topology event.TopologyDescription
	// primary identifies the primary server and its election; empty if there is none. Elected is since when.
	primary string
	elected time.Time
	// reason is the last reason why a server could not be used, with advice; both are empty while one can be used.
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
				h.note(fmt.Sprintf("%s belongs to %s, and the address asks for the replica set %q", s.Addr, its, h.set),
					"correct replicaSet in the address")
			}
		},
	}
}

func (h *health) note(reason, advice string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.reason, h.advice = clip(reason), advice
}

// accepted notes whether the server accepts user and password, if the outcome of a call shows it.
func (h *health) accepted(err error) {
	var server mongo.ServerError
	refused := errors.As(err, &server) && server.HasErrorCode(codeSignIn)
	if refused || err == nil && h.refused.Load() {
		h.refused.Store(refused)
	}
}

// usable reports whether a server accepts writes. The caller holds mu.
func (h *health) usable() bool {
	for _, s := range h.topology.Servers {
		switch s.Kind {
		case "Standalone", "RSPrimary", "Mongos", "LoadBalancer":
			return true
		}
	}
	return false
}

// elects returns the primary server and its election, "" if there is none or no replica set. The caller holds mu.
func (h *health) elects() string {
	for _, s := range h.topology.Servers {
		if s.Kind == "RSPrimary" {
			return s.Addr.String() + " " + s.ElectionID.Hex()
		}
	}
	return ""
}

// Elected returns the time of the last change of the replica set's primary, as this process has seen it.
func (e *Engine) Elected() time.Time {
	e.health.mu.Lock()
	defer e.health.mu.Unlock()
	return e.health.elected
}

// whyNot returns the reason of a connection failure that an operator can fix, with advice; nothing for other failures.
func whyNot(address string, err error) (reason, advice string) {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		other     x509.CertificateInvalidError
		record    tls.RecordHeaderError
	)
	switch {
	case errors.As(err, &authority):
		return "the certificate of " + address + " is not trusted: it is signed by an unknown authority",
			"name the certificate file of the authority in the address: tlsCAFile"
	case errors.As(err, &host):
		return "the certificate of " + address + " is for other names", "use a name of the certificate in the address"
	case errors.As(err, &other):
		return "the certificate of " + address + " is not trusted: " + other.Error(), "renew it"
	case errors.As(err, &record):
		return address + " does not speak TLS", "remove tls=true from the address, or enable TLS in the server"
	}
	return "", ""
}

// because returns why no server can be used: the known reason, otherwise the text of err.
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

// Inspect returns findings about the servers, the checks of documents by the server, indexes left by other versions,
// and foreign documents. Only the last need the server, and are left out while no server can be used.
func (e *Engine) Inspect(ctx context.Context) []driver.Finding {
	found := slices.Concat(e.health.findings(), e.unguarded(), e.stale())
	unusable := func(f driver.Finding) bool { return f.Subject == "server" && f.Verdict == driver.FindingWrong }
	if slices.ContainsFunc(found, unusable) && e.Refusing() {
		return found
	}
	return append(found, e.foreign(ctx)...)
}

// findings returns findings about the servers.
func (h *health) findings() []driver.Finding {
	h.mu.Lock()
	defer h.mu.Unlock()
	const subject = "server"
	var found []driver.Finding
	wrong := func(says, advice string) {
		found = append(found, driver.Finding{Subject: subject, Verdict: driver.FindingWrong, Says: says, Advice: advice})
	}
	if h.refused.Load() {
		wrong("the user or the password of the address is not accepted", "correct the address: reserved characters in "+
			"it must be percent-encoded, and authSource must name the database in which the user was created")
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
		wrong("is a standalone server: acknowledged writes can be lost with it, and writes whose answer was lost are "+
			"not retried", "make it a replica set, with three members in production")
	case kinds["Mongos"] > 0:
		found = append(found, driver.Finding{
			Subject: subject, Says: fmt.Sprintf("a sharded cluster; routers: %d", kinds["Mongos"]),
		})
	case kinds["RSPrimary"]+kinds["RSSecondary"] > 0 && !h.usable():
		wrong(fmt.Sprintf("no member of the replica set takes writes; secondaries: %d, not reached: %d",
			kinds["RSSecondary"], kinds["Unknown"]), "check that a majority of the members run and reach each other")
	case kinds["RSPrimary"] > 0:
		f := driver.Finding{
			Subject: subject, Says: fmt.Sprintf("a replica set with its primary; secondaries: %d", kinds["RSSecondary"]),
		}
		if n := kinds["Unknown"]; n > 0 {
			f.Verdict, f.Advice = driver.FindingWarning, "check that they run"
			f.Says += fmt.Sprintf(", not reached: %d", n)
		}
		found = append(found, f)
	}
	return found
}
