package mongo

import (
	"context"
	"errors"
	"fmt"

	"go.mongodb.org/mongo-driver/v2/bson"
	"go.mongodb.org/mongo-driver/v2/mongo"
	"go.mongodb.org/mongo-driver/v2/mongo/options"
)

// snapshotWireVersion is that of MongoDB 5.0, the first whose queries can read a snapshot.
const snapshotWireVersion = 13

// Snapshot implements driver.Snapshotter: by a session with the read concern snapshot, which replica sets and sharded
// clusters have. They keep what it reads for five minutes, unless minSnapshotHistoryWindowInSeconds says otherwise.
func (e *Engine) Snapshot(ctx context.Context) (context.Context, func(), error) {
	var server struct {
		SetName        string `bson:"setName"`
		Msg            string `bson:"msg"`
		MaxWireVersion int32  `bson:"maxWireVersion"`
	}
	err := e.call(ctx, "begin a snapshot", func(ctx context.Context) error {
		err := e.client.Database("admin").RunCommand(ctx, bson.D{{Key: "hello", Value: 1}}).Decode(&server)
		if refused, is := errors.AsType[mongo.CommandError](err); is && refused.Code == codeCommandNotFound {
			return nil // it is a substitute for MongoDB
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	if server.SetName == "" && server.Msg != "isdbgrid" || server.MaxWireVersion < snapshotWireVersion {
		return ctx, func() {}, nil
	}
	session, err := e.client.StartSession(options.Session().SetSnapshot(true).SetCausalConsistency(false))
	if err != nil {
		return nil, nil, fmt.Errorf("begin a snapshot: %w", err)
	}
	return mongo.NewSessionContext(ctx, session), func() { session.EndSession(ctx) }, nil
}
