package mongo

import (
	"errors"
	"strings"
	"testing"
	"time"

	"tenantry/backends/driver"
	"tenantry/crypto/secret"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/event"
)

// TestElectionsAreSeen: Elected changes when another primary is seen, or the same one after another election.
func TestElectionsAreSeen(t *testing.T) {
	t.Parallel()
	e := &Engine{health: &health{}}
	one, two := bson.NewObjectID(), bson.NewObjectID()
	last := time.Time{}
	for _, c := range []struct {
		servers []event.ServerDescription
		anew    bool
	}{
		{[]event.ServerDescription{{Addr: "a:1", Kind: "Mongos"}}, false},
		{[]event.ServerDescription{{Addr: "a:1", Kind: "Standalone"}}, false},
		{[]event.ServerDescription{{Addr: "a:1", Kind: "RSPrimary", ElectionID: one}, {Addr: "b:1", Kind: "RSSecondary"}}, true},
		{[]event.ServerDescription{{Addr: "a:1", Kind: "RSPrimary", ElectionID: one}, {Addr: "b:1", Kind: "Unknown"}}, false},
		{[]event.ServerDescription{{Addr: "a:1", Kind: "Unknown"}, {Addr: "b:1", Kind: "RSSecondary"}}, true},
		{[]event.ServerDescription{{Addr: "a:1", Kind: "Unknown"}, {Addr: "b:1", Kind: "RSPrimary", ElectionID: two}}, true},
		{[]event.ServerDescription{{Addr: "b:1", Kind: "RSPrimary", ElectionID: one}}, true},
	} {
		e.health.monitor().TopologyDescriptionChanged(&event.TopologyDescriptionChangedEvent{NewDescription: event.TopologyDescription{Servers: c.servers}})
		now := e.Elected()
		if now.After(last) != c.anew {
			t.Errorf("%+v: Elected = %s, before %s; want a change: %t", c.servers, now, last, c.anew)
		}
		last = now
	}
}

// TestConnectionFailuresAreNamed: the error of a call and the findings of Inspect name the cause.
func TestConnectionFailuresAreNamed(t *testing.T) {
	t.Parallel()
	trusted := func(t *testing.T) string {
		return "mongodb://" + fake(t, &fakeServer{}, selfSigned(t)).addr + "/?tls=true"
	}
	signIn := func(name string, _ bson.Raw) bson.D {
		if name == "saslStart" {
			return refusal(18, "AuthenticationFailed")
		}
		return bson.D{{Key: "ok", Value: 1.0}}
	}
	for name, c := range map[string]struct {
		address      func(*testing.T) string
		fails        string // in the error of a call
		says, advice string
	}{
		"an untrusted certificate": {trusted, "is not trusted", "is not trusted", "tlsCAFile"},
		"no TLS": {func(t *testing.T) string {
			return "mongodb://" + answering(t, "HTTP/1.0 400 Bad Request\r\n\r\n") + "/?tls=true"
		}, "does not speak TLS", "does not speak TLS", "tls=true"},
		"another replica set": {func(t *testing.T) string {
			return "mongodb://" + fake(t, &fakeServer{}, nil).member("rs1").addr + "/?replicaSet=rs0"
		}, `belongs to "rs1"`, `asks for the replica set "rs0"`, "replicaSet"},
		"no replica set": {func(t *testing.T) string {
			return "mongodb://" + fake(t, &fakeServer{}, nil).addr + "/?replicaSet=rs0"
		}, "belongs to no replica set", `asks for the replica set "rs0"`, "replicaSet"},
		"a wrong password": {func(t *testing.T) string {
			f := fake(t, &fakeServer{answer: signIn}, nil).member("rs0")
			return "mongodb://user:" + password + "@" + f.addr + "/?replicaSet=rs0&authMechanism=SCRAM-SHA-256"
		}, "does not accept the user or the password", "is not accepted", "authSource"},
		"a standalone server": {func(t *testing.T) string {
			return "mongodb://" + fake(t, &fakeServer{}, nil).addr + "/"
		}, "", "standalone", "replica set"},
		"nothing": {func(t *testing.T) string {
			return "mongodb://" + fake(t, &fakeServer{}, nil).member("rs0").addr + "/?replicaSet=rs0"
		}, "", "a replica set with its primary; secondaries: 0", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := openAt(t, Options{URI: secret.New(c.address(t)), ServerSelectionTimeout: time.Second})
			err := e.Check(t.Context())
			if c.fails == "" && err != nil || c.fails != "" && (!errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), c.fails)) {
				t.Errorf("Check: %v, want %q", err, c.fails)
			}
			if err != nil && strings.Contains(err.Error(), password) {
				t.Errorf("the error holds the password: %v", err)
			}
			found := e.Inspect(t.Context())
			if len(found) != 1 || !strings.Contains(found[0].Says, c.says) || !strings.Contains(found[0].Advice, c.advice) || (found[0].Verdict == driver.FindingGood) != (name == "nothing") {
				t.Errorf("Inspect: %+v, want one finding with %q and the advice %q", found, c.says, c.advice)
			}
		})
	}
}
