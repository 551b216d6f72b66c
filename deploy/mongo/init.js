// Creates the replica set and the gateway's user if they do not exist, and sets the user's present password and roles. It
// may run at every start.
const admin = db.getSiblingDB("admin");
admin.auth(process.env.MONGO_ROOT_USERNAME, process.env.MONGO_ROOT_PASSWORD);

try {
  rs.status();
} catch (e) {
  if (e.codeName !== "NotYetInitialized") throw e;
  rs.initiate({ _id: "rs0", members: [{ _id: 0, host: "mongo:27017" }] });
}
for (let tries = 0; !db.hello().isWritablePrimary; tries++) {
  if (tries === 240) throw new Error("the replica set has no primary after two minutes; see the log of the service mongo");
  sleep(500);
}

// All rights in its own database and none elsewhere. For "isolation: database" the roles are readWriteAnyDatabase and
// dbAdminAnyDatabase, on admin.
const roles = [
  { role: "readWrite", db: "tenantry" },
  { role: "dbAdmin", db: "tenantry" },
];
const name = "tenantry";
const pwd = process.env.MONGO_PASSWORD;
if (admin.getUser(name) === null) {
  admin.createUser({ user: name, pwd, roles });
} else {
  admin.updateUser(name, { pwd, roles });
}
print("the replica set rs0 and the user tenantry are ready");
