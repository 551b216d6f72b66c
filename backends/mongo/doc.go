// Package mongo keeps workspaces in MongoDB 6.0 or newer, a replica set or a sharded cluster.
//
// A document is stored as
//
//	{_id: "<workspace>/<id>", org_id: "<workspace>", <field>: value, ..., rev: 1, custom: {<custom key>: value}}
//
// in a collection with the name of its kind. It has the fields of the record in their order and under their own names,
// then the revision, then declared values that the record's JSON omits, then the values of fields that the organization
// defined. Times are dates, and missing values are null.
//
// Bodies and custom values are returned byte for byte. Every document is decoded before it is sent; values that BSON
// does not reproduce (1.50, a repeated key, a deep nesting) are stored as text as well, in json: {<field>: "<JSON>"}.
// Fields of a record that have a name of this package get an underscore at the end. Keys within values are encoded if
// they contain a dot or a dollar sign, or are empty.
//
// Every query, write and index begins with org_id. A sharded cluster can therefore send it to one shard, and no query
// can reach another workspace, whether workspaces share a database (Shared) or have one each (PerDatabase).
//
// On a sharded cluster a collection with a unique index can be sharded by {org_id: 1} only, because the server requires
// the shard key at the beginning of every unique index. Other collections can also be sharded by {org_id: 1, _id: 1}.
//
// Writes are acknowledged by a majority, and reads go to the primary. Batches are not transactions; Write in package
// driver says what a batch guarantees.
package mongo
