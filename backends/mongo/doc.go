// Package mongo keeps workspaces in MongoDB 6.0 or newer, a replica set or a sharded cluster.
//
// A document is stored as
//
//	{_id: "<workspace>/<id>", org_id: "<workspace>", <field>: value, ..., rev: 1, custom: {<custom key>: value}}
//
// in a collection of its kind's name: the fields of the record in their order, under their own names, then the
// revision, then declared values that the record's JSON leaves out, then what the organization defined. Times are
// dates; what questions take for missing is null. Body and custom values come back byte for byte: every write is read
// before it is sent, and what BSON does not repeat (1.50, a key twice, a nesting too deep) is there as text too, in
// json: {<field>: "<JSON>"}. Names that are this package's have an underscore after them, and keys within values are
// encoded where a dot, a dollar sign or nothing would be misread.
//
// Every question, every write and every index
// starts with org_id, so that a sharded cluster can send it to one shard and no question can meet
// another workspace, whether workspaces share a database (Shared) or have one each (PerDatabase).
//
// On a sharded cluster a collection with a unique index can be sharded by {org_id: 1} alone, because the
// server wants the shard key at the head of every unique index; others by {org_id: 1, _id: 1} as well.
//
// Writes are acknowledged by a majority, reads go to the primary. There are no transactions of several
// documents: see Write in package driver for what a batch promises.
package mongo
