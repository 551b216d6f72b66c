// Package mongo keeps workspaces in MongoDB 6.0 or newer, a replica set or a sharded cluster.
//
// A document is stored as
//
//	{_id: "<workspace>/<id>", org_id: "<workspace>", rev: 1, body: "<JSON text>", custom: "<JSON text>",
//	 f: {<declared field>: value}, c: {<custom key>: scalar}, l: {<custom key>: [strings]}}
//
// in a collection of its kind's name. Body and custom values come back byte for byte; f, c and l only
// answer questions. What is missing is absent, never null. Every question, every write and every index
// starts with org_id, so that a sharded cluster can send it to one shard and no question can meet
// another workspace, whether workspaces share a database (Shared) or have one each (PerDatabase).
//
// On a sharded cluster a collection with a unique index can be sharded by {org_id: 1} alone, because the
// server wants the shard key at the head of every unique index; others by {org_id: 1, _id: 1} as well.
//
// Writes are acknowledged by a majority, reads go to the primary. There are no transactions of several
// documents: see Write in package driver for what a batch promises.
package mongo
