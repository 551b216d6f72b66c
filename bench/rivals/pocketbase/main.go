// Command pocketbase is PocketBase with the collections and indexes that an expert would make for the queries of the
// benchmarks. Callers are signed-in users.
package main

import (
	"net/http"
	"os"
	"strings"

	"github.com/pocketbase/dbx"
	"github.com/pocketbase/pocketbase/apis"
	"github.com/pocketbase/pocketbase/core"
	_ "github.com/pocketbase/pocketbase/migrations"
	"github.com/pocketbase/pocketbase/tools/filesystem"
	"github.com/pocketbase/pocketbase/tools/types"

	"tenantry/bench/rivals/rival"
)

// Arguments: the data folder; the bundle to load; and "synchronous=NORMAL", the default, or "synchronous=FULL", with
// which a write is on disk when it is acknowledged, as in Tenantry. Optionally the path of a file, which a record then has.
func main() { rival.Exit(run(os.Args[1], os.Args[2], os.Args[3], os.Args[4:]...)) }

func run(folder, bundle, durability string, files ...string) error {
	app := core.NewBaseApp(core.BaseAppConfig{DataDir: folder, DBConnect: func(path string) (*dbx.DB, error) {
		db, err := core.DefaultDBConnect(path)
		if err != nil || durability != "synchronous=FULL" {
			return db, err
		}
		db.Close()
		return dbx.Open("sqlite", path+strings.ReplaceAll(pragmas, "NORMAL", "FULL"))
	}})
	if err := app.Bootstrap(); err != nil {
		return err
	}
	if err := app.RunAllMigrations(); err != nil {
		return err
	}
	token, err := prepare(app, bundle)
	if err != nil {
		return err
	}
	for _, path := range files {
		if err := storeFile(app, path); err != nil {
			return err
		}
	}
	app.OnServe().BindFunc(func(e *core.ServeEvent) error {
		e.InstallerFunc = nil
		l, err := rival.Listen()
		if err != nil {
			return err
		}
		e.Listener = l
		if err := e.Next(); err != nil {
			return err
		}
		return rival.Ready(l, token)
	})
	if err := apis.Serve(app, apis.ServeConfig{HttpAddr: "127.0.0.1:0"}); err != http.ErrServerClosed {
		return err
	}
	return nil
}

// pragmas has the pragmas of core.DefaultDBConnect.
const pragmas = "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=journal_size_limit(200000000)&_pragma=synchronous(NORMAL)&_pragma=foreign_keys(ON)&_pragma=temp_store(MEMORY)&_pragma=cache_size(-32000)"

// prepare creates the collections, loads the bundle and returns a user's token.
func prepare(app core.App, bundle string) (string, error) {
	folders := collection("folders", &core.TextField{Name: "name"})
	contacts := collection("contacts", texts("email", "first_name", "last_name", "country", "city", "status", "tier")...)
	contacts.Fields.Add(&core.NumberField{Name: "seats"})
	for _, field := range []string{"country", "tier", "seats"} {
		contacts.AddIndex("idx_contacts_"+field, false, field, "")
	}
	trees := collection("trees", &core.TextField{Name: "species", Required: true}, &core.NumberField{Name: "height"})
	for _, c := range []*core.Collection{folders, contacts, trees} {
		if err := app.Save(c); err != nil {
			return "", err
		}
	}
	files := collection("files", texts("filename", "mimetype")...)
	files.Fields.Add(&core.RelationField{Name: "folder", CollectionId: folders.Id, MaxSelect: 1})
	files.AddIndex("idx_files_folder", false, "folder, filename", "")
	if err := app.Save(files); err != nil {
		return "", err
	}
	if err := load(app, bundle); err != nil {
		return "", err
	}
	users, err := app.FindCollectionByNameOrId("users")
	if err != nil {
		return "", err
	}
	user := core.NewRecord(users)
	user.SetEmail("bench@example.com")
	user.SetRandomPassword()
	if err := app.Save(user); err != nil {
		return "", err
	}
	return user.NewAuthToken()
}

// storeFile makes a record with a file that everybody may read.
func storeFile(app core.App, path string) error {
	c := core.NewBaseCollection("downloads")
	c.Fields.Add(&core.FileField{Name: "file", MaxSelect: 1, MaxSize: 100 << 20})
	if err := app.Save(c); err != nil {
		return err
	}
	f, err := filesystem.NewFileFromPath(path)
	if err != nil {
		return err
	}
	f.Name = "download.bin"
	r := core.NewRecord(c)
	r.Id = "downloads000001"
	r.Set("file", f)
	return app.Save(r)
}

func collection(name string, fields ...core.Field) *core.Collection {
	c := core.NewBaseCollection(name)
	c.Fields.Add(fields...)
	signedIn := types.Pointer(`@request.auth.id != ""`)
	c.ListRule, c.ViewRule, c.CreateRule, c.UpdateRule, c.DeleteRule = signedIn, signedIn, signedIn, signedIn, signedIn
	return c
}

func texts(names ...string) (fields []core.Field) {
	for _, name := range names {
		fields = append(fields, &core.TextField{Name: name})
	}
	return fields
}

// load stores the lines of the bundle as records, with the last 15 digits of their identifiers.
func load(app core.App, bundle string) error {
	err := app.RunInTransaction(func(tx core.App) error {
		inserts := map[string]*dbx.Query{}
		for kind, columns := range map[string]string{
			"contact": "contacts (id, email, first_name, last_name, country, city, status, tier, seats)",
			"folder":  "folders (id, name)",
			"file":    "files (id, filename, mimetype, folder)",
		} {
			_, list, _ := strings.Cut(columns, "(")
			values := "{:" + strings.ReplaceAll(strings.TrimSuffix(list, ")"), ", ", "}, {:") + "}"
			inserts[kind] = tx.NonconcurrentDB().NewQuery("INSERT INTO " + columns + " VALUES (" + values + ")").Prepare()
			defer inserts[kind].Close()
		}
		return rival.Read(bundle, func(l rival.Line) error {
			insert := inserts[l.Kind]
			if insert == nil {
				return nil
			}
			params := dbx.Params{"id": short(l.ID)}
			switch l.Kind {
			case "contact":
				params["email"], params["first_name"], params["last_name"] = l.Email, l.FirstName, l.LastName
				params["country"], params["city"], params["status"] = l.Country, l.City, l.Status
				params["tier"], params["seats"] = l.Fields.Tier, l.Fields.Seats
			case "folder":
				params["name"] = l.Name
			case "file":
				params["filename"], params["mimetype"], params["folder"] = l.Filename, l.Mimetype, short(l.FolderID)
			}
			_, err := insert.Bind(params).Execute()
			return err
		})
	})
	if err == nil {
		_, err = app.NonconcurrentDB().NewQuery("ANALYZE").Execute()
	}
	return err
}

func short(id string) string { return id[max(0, len(id)-15):] }
