package mongo

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"tenantry/backends/driver"

	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
	"go.mongodb.org/mongo-driver/v2/mongo/readconcern"
	"go.mongodb.org/mongo-driver/v2/mongo/readpref"
	"go.mongodb.org/mongo-driver/v2/mongo/writeconcern"
)

const (
	// maxDatabaseName is MongoDB's limit, in bytes.
	maxDatabaseName = 63

	maxConnectTimeout = 2 * time.Second
	maxConnIdleTime   = 5 * time.Minute
	// heartbeat is the interval at which each server is checked. A server that stops responding is detected after
	// heartbeat and maxConnectTimeout; calls that wait for it then end.
	heartbeat           = time.Second
	defaultMaxPool      = 64
	defaultQueryTimeout = 10 * time.Second
)

// check sets defaults, and returns an error for options that can never work. Errors do not repeat the URI, because it
// contains a password.
func (o *Options) check() error {
	if o.MaxPool <= 0 {
		o.MaxPool = defaultMaxPool
	}
	if o.QueryTimeout <= 0 {
		o.QueryTimeout = defaultQueryTimeout
	}
	if o.ServerSelectionTimeout <= 0 || o.ServerSelectionTimeout > maxConnectTimeout {
		o.ServerSelectionTimeout = maxConnectTimeout
	}
	if o.Isolation != Shared && o.Isolation != PerDatabase {
		return fmt.Errorf("unknown isolation %d of a MongoDB store", o.Isolation)
	}
	if o.Database == "" || strings.ContainsAny(o.Database, "/\\. \"$*<>:|?\x00") {
		return fmt.Errorf("the MongoDB database %q: a name has no spaces and none of /\\.\"$*<>:|?", o.Database)
	}
	switch o.Database {
	case "admin", "local", "config":
		return fmt.Errorf("the MongoDB database %q belongs to the server; name another", o.Database)
	}
	// The name of a database is followed by an underscore and the name of a workspace, which has at least one byte.
	if n := len(o.Database); n > maxDatabaseName || o.Isolation == PerDatabase && n+2 > maxDatabaseName {
		return fmt.Errorf("the MongoDB database name %q is too long: %d bytes is MongoDB's limit",
			o.Database, maxDatabaseName)
	}
	return nil
}

// connect returns a client, which connects on first use.
func (o *Options) connect(h *health) (*mongo.Client, error) {
	uri := o.URI.Reveal()
	isSRV := strings.HasPrefix(uri, "mongodb+srv://")
	if !isSRV && !strings.HasPrefix(uri, "mongodb://") {
		return nil, errors.New("the MongoDB address must start with mongodb:// or mongodb+srv://")
	}
	c := options.Client().ApplyURI(uri)
	if err := c.Validate(); err != nil {
		if isSRV {
			return nil, fmt.Errorf("%w: the mongodb+srv address cannot be resolved or is malformed; "+
				"check its host name, the DNS server and its options", driver.ErrUnavailable)
		}
		return nil, errors.New("the MongoDB address is malformed; " +
			"it reads mongodb://user:password@host:27017/?replicaSet=name, " +
			"with reserved characters in user and password percent-encoded")
	}
	journal := true
	c.SetAppName("tenantry").
		SetWriteConcern(&writeconcern.WriteConcern{W: writeconcern.WCMajority, Journal: &journal}).
		SetReadConcern(readconcern.Local()).SetReadPreference(readpref.Primary()).
		SetRetryReads(true).SetRetryWrites(true).
		SetServerSelectionTimeout(o.ServerSelectionTimeout).SetHeartbeatInterval(heartbeat).
		SetTimeout(o.QueryTimeout).
		SetMaxPoolSize(uint64(o.MaxPool)).SetMaxConnIdleTime(maxConnIdleTime)
	if c.ConnectTimeout == nil || *c.ConnectTimeout <= 0 || *c.ConnectTimeout > maxConnectTimeout {
		c.SetConnectTimeout(maxConnectTimeout)
	}
	if c.ReplicaSet != nil {
		h.set = *c.ReplicaSet
	}
	c.SetServerMonitor(h.monitor())
	c.SetMonitor(countTries(o.Monitor))
	client, err := mongo.Connect(c)
	if err != nil {
		return nil, errors.New("the options of the MongoDB address contradict each other; " +
			"check TLS files, authentication and compressors")
	}
	return client, nil
}
