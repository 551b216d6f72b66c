// Package demo has the fictional organization of the demo, a small maker of bicycles. The data is the same every time,
// except that its dates are relative to the present.
package demo

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"tenantry/internal/texts"
)

// The organization, and the identifiers of records that the demo links to.
const (
	Slug = "acme"
	Name = "Acme Cycles"

	FolderID    = "66f000000000000000000001"
	ContactID   = "66a000000000000000000001"
	SecretField = "passport_number"
	CampaignID  = "66c000000000000000000001"
	// PlainReportID is a shared report that needs no token, SecureReportID one that does. Their public identifiers are
	// random, so the bundle does not have them.
	PlainReportID  = "66d000000000000000000001"
	SecureReportID = "66d000000000000000000002"

	northTeam = "66e000000000000000000001"
	southTeam = "66e000000000000000000002"
	formID    = "66b000000000000000000001"
)

// The administrator. The bundle does not have this person, because the password is made by Begin.
const (
	AdminName  = "Ada Example"
	AdminEmail = "ada@acme.example"
)

const (
	contacts    = 36
	submissions = 24
)

type line map[string]any

// WriteBundle writes the data of the organization, except for the organization itself and its administrator. The latest
// dates are those of now.
func WriteBundle(w io.Writer, now time.Time) error {
	b := &builder{random: rand.New(rand.NewPCG(7, 11)), now: now.UTC()} //nolint:gosec // the data must be the same every time
	b.people()
	b.contacts()
	b.files()
	b.bikes()
	b.lessons()
	b.forms()
	b.campaigns()
	b.reports()
	out := bufio.NewWriter(w)
	for _, l := range b.lines {
		raw, err := json.Marshal(l.fields)
		if err != nil {
			return fmt.Errorf("demo data: %w", err)
		}
		// kind comes first, so that readers recognize a line at once.
		fmt.Fprintf(out, `{"kind":%q,%s`+"\n", l.kind, raw[1:])
	}
	return out.Flush()
}

// builder collects the lines of the bundle.
type builder struct {
	random *rand.Rand
	now    time.Time
	lines  []struct {
		kind   string
		fields line
	}
}

func (b *builder) add(kind string, fields line) {
	b.lines = append(b.lines, struct {
		kind   string
		fields line
	}{kind, fields})
}

// ago returns the time some days before now, in the format of bundles.
func (b *builder) ago(days int) string {
	return b.now.AddDate(0, 0, -days).Truncate(time.Hour).Format(texts.TimeLayout)
}

// day returns the date some days before now.
func (b *builder) day(days int) string { return b.now.AddDate(0, 0, -days).Format(time.DateOnly) }

func id(prefix string, n int) string { return fmt.Sprintf("%s%0*d", prefix, 24-len(prefix), n) }

func pick[T any](b *builder, list []T) T { return list[b.random.IntN(len(list))] }

func (b *builder) people() {
	b.add("team", line{"id": northTeam, "name": "North"})
	b.add("team", line{"id": southTeam, "name": "South"})
	b.add("role", line{
		"name": "sales", "label": "Sales",
		"permissions": []string{"contacts", "manage_campaigns", "view_form_submissions"},
	})
	b.add("role", line{
		"name": "workshop", "label": "Workshop",
		"permissions": []string{"manage_files", "manage_custom_objects", "manage_forms"},
	})
	for i, u := range []struct{ name, email, role, team string }{
		{"Boris Example", "boris@acme.example", "sales", northTeam},
		{"Chiara Example", "chiara@acme.example", "sales", southTeam},
		{"Deniz Example", "deniz@acme.example", "workshop", ""},
	} {
		teams := []string{}
		if u.team != "" {
			teams = append(teams, u.team)
		}
		b.add("user", line{
			"id": i + 2, "name": u.name, "email": u.email, "roles": []string{u.role}, "teams": teams, "active": true,
		})
	}
}

func (b *builder) contacts() {
	for _, f := range []line{
		{"key": "age", "title": "Age", "type": "Number"},
		{"key": "frame", "title": "Frame size", "type": "Text"},
		{"key": "last_order", "title": "Last order", "type": "Date"},
		{"key": SecretField, "title": "Passport number", "type": "Encrypted"},
	} {
		b.add("contact_field", f)
	}
	first := []string{"Mila", "Jonas", "Aiko", "Pedro", "Salma", "Henrik", "Yara", "Tomas", "Ines", "Kofi", "Greta", "Luca"}
	last := []string{"Lindqvist", "Moreau", "Okafor", "Bauer", "Tanaka", "Silva", "Novak", "Visser", "Haddad", "Rossi"}
	places := []struct{ country, city, team string }{
		{"DE", "Hamburg", northTeam}, {"DE", "Leipzig", northTeam}, {"NL", "Utrecht", northTeam}, {"SE", "Malmö", northTeam},
		{"FR", "Lyon", southTeam}, {"IT", "Torino", southTeam}, {"ES", "Valencia", southTeam},
	}
	for n := 1; n <= contacts; n++ {
		given, family, place := first[n%len(first)], last[n%len(last)], places[n%len(places)]
		teams := []string{}
		if n%4 != 0 {
			teams = append(teams, place.team)
		}
		b.add("contact", line{
			"id": id("66a", n), "external_id": fmt.Sprintf("shop-%04d", n), "first_name": given, "last_name": family,
			"email": fmt.Sprintf("%s.%s.%d@mail.example", strings.ToLower(given), strings.ToLower(family), n), "phone": fmt.Sprintf("+1 555 01%02d", n),
			"country": place.country, "city": place.city, "status": pick(b, []string{"active", "active", "active", "dormant"}),
			"tags": []string{pick(b, []string{"commuter", "racer", "tourer"})}, "teams": teams, "created_at": b.ago(contacts*9 - n*9),
			"fields": line{
				"age": 18 + b.random.IntN(50), "frame": pick(b, []string{"S", "M", "L", "XL"}), "last_order": b.day(b.random.IntN(300)),
				SecretField: fmt.Sprintf("X%07d", 1_000_000+b.random.IntN(9_000_000)),
			},
		})
	}
}

func (b *builder) files() {
	folders := []struct {
		name   string
		parent int
		files  []string
	}{
		{"Catalogue", 0, []string{"price-list.pdf", "photos.zip"}},
		{"Spring", 1, []string{"city-bike.png", "road-bike.png", "cargo-bike.png"}},
		{"Autumn", 1, []string{"gravel-bike.png"}},
		{"Contracts", 0, []string{"frame-supplier.pdf", "workshop-lease.pdf"}},
	}
	types := map[string]string{"pdf": "application/pdf", "png": "image/png", "zip": "application/zip"}
	file := 0
	for i, f := range folders {
		l := line{"id": id("66f", i+1), "name": f.name, "user_id": 4, "created_at": b.ago(200 - i)}
		if f.parent > 0 {
			l["folder_id"] = id("66f", f.parent)
		}
		b.add("folder", l)
		for _, name := range f.files {
			file++
			ext := name[strings.LastIndexByte(name, '.')+1:]
			b.add("file", line{
				"id": id("66f1", file), "filename": name, "mimetype": types[ext], "type": ext,
				"hash": fmt.Sprintf("%016x%016x", b.random.Uint64(), b.random.Uint64()), "folder_id": id("66f", i+1), "user_id": 4, "created_at": b.ago(150 - file),
			})
		}
	}
}

func (b *builder) bikes() {
	b.add("custom_object", line{
		"id": "66b100000000000000000001", "name": "bike", "label": "Bike", "label_plural": "Bikes",
		"schema": line{
			"model": line{"title": "Model", "type": "Text", "required": true}, "category": line{"title": "Category", "type": "Text"},
			"price": line{"title": "Price", "type": "Number"}, "electric": line{"title": "Electric", "type": "Boolean"},
			"launched": line{"title": "Launched", "type": "Date"},
		},
	})
	models := []string{
		"Alster", "Börde", "Camargue", "Duna", "Elbe", "Fjord", "Garonne", "Havel", "Isar", "Jura", "Kolme", "Loire",
	}
	for n, name := range models {
		b.add("record", line{
			"id": id("66b2", n+1), "object": "bike", "external_id": fmt.Sprintf("bike-%02d", n+1),
			"values": line{
				"model": name, "category": []string{"city", "road", "cargo"}[n%3], "price": 900 + 150*n, "electric": n%4 == 0, "launched": b.day(60 * n),
			},
		})
	}
}

// lessons adds the lessons that the compliance settings require.
func (b *builder) lessons() {
	b.add("custom_object", line{
		"id": "66b400000000000000000001", "name": "lesson", "label": "Lesson", "label_plural": "Lessons",
		"schema": line{
			"topic": line{"title": "Topic", "type": "Text", "required": true}, "contact": line{"title": "Contact", "type": "Text"},
			"tags": line{"title": "Tags", "type": "MultiSelect"},
		},
	})
	topics := []string{"Brakes and lights", "Riding in traffic", "Fixing a puncture"}
	tags := [][]string{{"safety", "workshop"}, {"safety"}, {"workshop"}}
	for n := 1; n < contacts; n++ {
		b.add("record", line{
			"id": id("66b5", n), "object": "lesson", "external_id": fmt.Sprintf("lesson-%02d", n), "created_at": b.ago(n * 2),
			"values": line{"topic": topics[n%3], "contact": id("66a", n), "tags": tags[n%3]},
		})
	}
}

func (b *builder) forms() {
	b.add("form_collection", line{
		"id": formID, "name": "service_request", "label": "Service request", "label_plural": "Service requests", "user_id": 4,
		"schema": line{
			"bike": line{"title": "Bike", "type": "Text"}, "wish": line{"title": "Requested work", "type": "LongText"},
			"rating": line{"title": "Rating", "type": "Number"},
		},
		"email_alerts": line{},
	})
	wishes := []string{"New brake pads", "The chain slips", "A check before the tour", "A puncture", "The light flickers"}
	for n := 1; n <= submissions; n++ {
		b.add("submission", line{
			"id": id("66b3", n), "form": formID, "created_at": b.ago(n * 3),
			"values": line{"form_name": fmt.Sprintf("Request %d", n), "bike": pick(b, []string{"Alster", "Elbe", "Loire"}), "wish": pick(b, wishes), "rating": 1 + b.random.IntN(5)},
		})
	}
}

func (b *builder) campaigns() {
	b.add("campaign", line{
		"id": CampaignID, "name": "Riders over 30 in Germany and the Netherlands",
		"filter": line{"country": line{"in": []string{"DE", "NL"}}, "age": line{"gt": 30}},
	})
	b.add("campaign", line{"id": id("66c", 2), "name": "All active contacts", "filter": line{"status": "active"}})
	b.add("compliance_settings", line{"enabled": true, "lesson_tags_any": []string{"safety"}, "submission_enabled": false})
}

func (b *builder) reports() {
	count := []line{{"op": "count"}}
	b.add("custom_report", line{
		"id": PlainReportID, "title": "Contacts by country", "desc": "How many people ride where.",
		"class": "Contacts", "visual": "bar", "secure": false, "shareable": true, "exportable": true, "portal_visible": true,
		"query": line{"group_by": []line{{"field": "country"}}, "measures": count, "sort": []string{"-count"}, "limit": 50},
	})
	b.add("custom_report", line{
		"id": SecureReportID, "title": "Riders of a country", "desc": "The person who shares it sets the country, and readers choose the age.",
		"class": "Contacts", "visual": "table", "secure": true, "shareable": true, "exportable": false, "portal_visible": false,
		"input": line{
			"country": line{"rule": "locked", "value": "DE", "label": "Country"},
			"age":     line{"rule": "editable", "value": "18", "label": "Not younger than", "type": "number"},
		},
		"query": line{
			"filter": line{"country": line{"input": "country"}, "age": line{"gte": line{"input": "age"}}},
			"fields": []string{"first_name", "city", "age"}, "sort": []string{"first_name"}, "limit": 100,
		},
	})
	b.add("custom_report", line{
		"id": id("66d", 3), "title": "Service requests by month", "class": "Submissions", "source": formID,
		"visual": "line", "secure": true, "shareable": true, "exportable": true, "portal_visible": false,
		"query": line{"group_by": []line{{"field": "created_at", "by": "month"}}, "measures": []line{{"op": "count"}, {"op": "avg", "field": "rating"}}},
	})
	for n, r := range []struct {
		title, visual, class, source string
		groups, measures             []line
	}{
		{"Service requests by week", "area", "Submissions", formID, []line{{"field": "created_at", "by": "week"}}, count},
		{"Contacts by status", "pie", "Contacts", "", []line{{"field": "status"}}, count},
		{"Contacts by country and status", "heat", "Contacts", "", []line{{"field": "country"}, {"field": "status"}}, count},
		{
			"Bikes and prices by category", "bar", "Records", "bike",
			[]line{{"field": "category"}}, []line{{"op": "count"}, {"op": "avg", "field": "price"}},
		},
		{"Number of contacts", "number", "Contacts", "", nil, count},
	} {
		query := line{"measures": r.measures}
		if r.groups != nil {
			query["group_by"] = r.groups
		}
		report := line{
			"id": id("66d", 4+n), "title": r.title, "class": r.class, "visual": r.visual,
			"secure": true, "shareable": true, "exportable": true, "query": query,
		}
		if r.source != "" {
			report["source"] = r.source
		}
		if n == 0 {
			report["child_reports"] = []string{id("66d", 3)} // shown as a tab
		}
		b.add("custom_report", report)
	}
}
