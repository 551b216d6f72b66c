package records

import (
	"encoding/base64"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
	"tenantry/tenants"
)

// sorted returns a field of the records of a list in an order, after checking that all ways to read it agree: as one
// page, by pages, by cursor, and backwards.
func sorted(t *testing.T, c fixture.KeyClient, path, sort, field string) string {
	t.Helper()
	read := func(sort, rest string) (got []string, next string) {
		a := c.Want(t, 200, http.MethodGet, path+"?sort="+url.QueryEscape(sort)+rest, "")
		for _, r := range a.Field("results").([]any) {
			got = append(got, fmt.Sprint(r.(map[string]any)[field]))
		}
		next, _ = a.Field("next").(string)
		return got, next
	}
	whole, _ := read(sort, "")
	for _, size := range []int{1, 2, 5} {
		var paged, after []string
		for page := 1; page <= len(whole)/size+1; page++ {
			got, _ := read(sort, fmt.Sprintf("&per_page=%d&page=%d", size, page))
			paged = append(paged, got...)
		}
		for next, more := "", true; more && len(after) <= len(whole); more = next != "" {
			var got []string
			got, next = read(sort, fmt.Sprintf("&per_page=%d&after=%s", size, next))
			after = append(after, got...)
		}
		if fmt.Sprint(paged) != fmt.Sprint(whole) || fmt.Sprint(after) != fmt.Sprint(whole) {
			t.Errorf("%s by %s: whole %v, by pages of %d %v, one after the other %v, want the same order",
				path, sort, whole, size, paged, after)
		}
	}
	return strings.Join(whole, " ")
}

// TestContract_SortByNumbersBeyondFloats checks that undefined numbers beyond the range of a float sort as the largest
// or smallest, and that every page includes their records.
func TestContract_SortByNumbersBeyondFloats(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageCustomObjects))
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, `{"name":"star","label":"Star","label_plural":"Stars","schema":{"odd":{"title":"Odd","type":"Payload"}}}`)
	const records = fixture.ObjectsPath + "/star/records"
	for i, odd := range []string{"1e400", "1", `"x"`, "-1e400", "1e308", "[1]", "1e500", "-1e500", "-1e308", "true"} {
		c.Want(t, 200, http.MethodPost, records, fmt.Sprintf(`{"external_id":"%d","values":{"odd":%s}}`, i, odd))
	}
	for sort, want := range map[string]string{"odd": "5 3 7 8 1 4 0 6 2 9", "-odd": "9 2 6 0 4 1 8 7 3 5"} {
		if got := sorted(t, c, records, sort, "external_id"); got != want {
			t.Errorf("by %s: %s, want %s", sort, got, want)
		}
	}
}

// TestContract_SortByDefinedFields checks that records and contacts can be sorted by defined fields, together with
// standard ones; records without a value come first.
func TestContract_SortByDefinedFields(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageCustomObjects))
	fields := []string{`"pin":{"title":"Pin","type":"Encrypted"}`, `"tags":{"title":"Tags","type":"MultiSelect"}`}
	for name, typ := range map[string]string{"price": "Number", "sold": "Boolean", "day": "Date", "at": "DateTime", "name": "Text", "odd": "Payload", "a": "Text", "b": "Text", "c": "Text", "d": "Text", "e": "Text"} {
		fields = append(fields, fmt.Sprintf(`%q:{"title":%q,"type":%q}`, name, name, typ))
	}
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, `{"name":"bike","label":"Bike","label_plural":"Bikes","schema":{`+strings.Join(fields, ",")+`}}`)
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, `{"name":"other","label":"Other","label_plural":"Others","schema":{"weight":{"title":"Weight","type":"Number"}}}`)
	const records = fixture.ObjectsPath + "/bike/records"
	for i, values := range []string{
		`{"price":10,"sold":true,"day":"2024-05-17","at":"2024-05-17T10:00:00+02:00","name":"b","odd":1}`,
		`{"price":9,"sold":false,"day":"2023-05-17","at":"2024-05-17T09:00:00Z","name":"B","odd":"x"}`,
		`{"price":9007199254740993,"day":"2024-05-16","name":"é","odd":[3]}`,
		`{"price":9007199254740992,"sold":true,"at":"2024-05-17T07:59:59.999Z","name":"a","odd":{"k":1}}`,
		`{"price":-0.5,"sold":false,"name":"日本","odd":true,"pin":"4711"}`,
		`{"name":"\ud83d\ude00","odd":1.5,"tags":["x"]}`,
		`{"price":9,"name":"b","odd":false}`,
		`{}`,
	} {
		c.Want(t, 200, http.MethodPost, records, fmt.Sprintf(`{"external_id":"%d","values":%s}`, i, values))
	}
	for sort, want := range map[string]string{
		"price": "5 7 4 1 6 0 3 2", "-price": "2 3 0 6 1 4 7 5", "sold": "2 5 6 7 1 4 0 3", "-sold": "3 0 4 1 7 6 5 2", "day": "3 4 5 6 7 1 2 0", "-day": "0 2 1 7 6 5 4 3",
		"at": "2 4 5 6 7 3 0 1", "name": "7 1 3 0 6 2 4 5", "-name": "5 4 2 6 0 3 1 7", "name,-price": "7 1 3 0 6 2 4 5", "name,price": "7 1 3 6 0 2 4 5", "-sold,price": "0 3 4 1 5 7 6 2",
		"odd": "2 3 7 0 5 1 6 4", "-odd": "4 6 1 5 0 7 3 2", "sold,-external_id": "7 6 5 2 4 1 3 0", "price,external_id": "5 7 4 1 6 0 3 2", "price,-id": "7 5 4 6 1 0 3 2",
	} {
		if got := sorted(t, c, records, sort, "external_id"); got != want {
			t.Errorf("by %s: %s, want %s", sort, got, want)
		}
	}
	if got := export(t, c, records+"/export?format=ndjson&sort=-price", "application/x-ndjson", "=records.ndjson"); strings.Index(got, `"external_id":"2"`) > strings.Index(got, `"external_id":"3"`) {
		t.Errorf("an export: got %s, want it sorted", got)
	}
	c.Want(t, 200, http.MethodGet, records+"?sort=price&filters[price][gt]=9&q=b", "", `"count":1`)
	for _, sort := range []string{"pin", "-tags", "weight", "price,-price", "$where", "values.price", "price,sold,day,at,name,odd,a,b,c"} {
		c.Want(t, 422, http.MethodGet, records+"?sort="+url.QueryEscape(sort), "", "sort must name at most 8 fields, each once, with - before it for descending order: id, ", "or fields of your own that are neither lists nor encrypted")
	}
	c.Want(t, 200, http.MethodGet, records+"?sort=price,sold,day,at,name,odd,a,b&after=&per_page=3", "")
	next := c.Want(t, 200, http.MethodGet, records+"?sort=price&after=&per_page=3", "").Field("next").(string)
	for _, query := range []string{"sort=-price", "sort=day", "sort=name"} {
		c.Want(t, 422, http.MethodGet, records+"?after="+next+"&"+query, "", "after must be the value")
	}

	former, err := base64.RawURLEncoding.DecodeString(c.Want(t, 200, http.MethodGet, records+"?sort=-price&after=&per_page=3", "").Field("next").(string))
	if err != nil || !strings.Contains(string(former), `,"-id"]`) {
		t.Fatalf(`got %s, %v, want no error and containing ",\"-id\"]"`, former, err)
	}
	next = base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(former), `,"-id"]`, `]`, 1))) // as earlier versions gave it, where ids rose
	c.Want(t, 422, http.MethodGet, records+"?sort=-price&after="+next, "", "after must be the value")

	c = fixture.WithToken(acme, acme.Key(t, tenants.Contacts))
	const contacts = "/api/contacts"
	for key, typ := range map[string]string{"age": "Number", "vip": "Boolean", "ssn": "Encrypted"} {
		c.Want(t, 200, http.MethodPost, contacts+"/fields", fmt.Sprintf(`{"key":%q,"title":%q,"type":%q}`, key, key, typ))
	}
	for i, values := range []string{`{"age":37,"vip":true}`, `{"age":9}`, `{}`, `{"age":37,"vip":false}`} {
		c.Want(t, 200, http.MethodPost, contacts, fmt.Sprintf(`{"email":"%d@example.com","fields":%s}`, i, values))
	}
	for sort, want := range map[string]string{"age": "2 1 0 3", "-age,-email": "3 0 1 2", "vip,age": "2 1 3 0", "-vip": "0 3 2 1"} {
		if got := strings.ReplaceAll(sorted(t, c, contacts, sort, "email"), "@example.com", ""); got != want {
			t.Errorf("contacts by %s: %s, want %s", sort, got, want)
		}
	}
	for sort, value := range map[string]string{"email": `"0@example.com"`, "-age": "37"} {
		next, err := base64.RawURLEncoding.DecodeString(c.Want(t, 200, http.MethodGet, contacts+"?sort="+sort+"&after=&per_page=1", "").Field("next").(string))
		if err != nil || !strings.Contains(string(next), "["+value+"]") {
			t.Fatalf("got %s, %v, want no error and containing %q", next, err, "["+value+"]")
		}
		for _, made := range []string{`[{"$gt":""}]`, `[["a"]]`, `[]`, "[" + value + "," + value + "]"} {
			after := base64.RawURLEncoding.EncodeToString([]byte(strings.Replace(string(next), "["+value+"]", made, 1)))
			c.Want(t, 422, http.MethodGet, contacts+"?sort="+sort+"&after="+after, "", "after must be the value")
		}
		c.Want(t, 422, http.MethodGet, contacts+"?sort="+sort+"&after=%21", "", "after must be the value")
	}
	c.Want(t, 422, http.MethodGet, contacts+"?sort=ssn", "", "sort must name at most 8 fields, each once, with - before it for descending order: id, ")
	c.Want(t, 422, http.MethodGet, contacts+"?sort=nothing", "", "sort must name at most 8 fields, each once, with - before it for descending order: id, ")
	// After a change of type, values of the old type have their place too.
	c.Want(t, 200, http.MethodPut, contacts+"/fields/age?force=true", `{"type":"Text"}`)
	c.Want(t, 200, http.MethodPost, contacts, `{"email":"4@example.com","fields":{"age":"37"}}`)
	if got := strings.ReplaceAll(sorted(t, c, contacts, "age", "email"), "@example.com", ""); got != "2 1 0 3 4" {
		t.Errorf("contacts by values of two types: got %s, want %q", got, "2 1 0 3 4")
	}
}

// TestContract_SortByLongTexts checks that a list sorted by texts too long for a URL can be read to its end.
func TestContract_SortByLongTexts(t *testing.T) {
	t.Parallel()
	acme := gatewaytest.Start(t).Org(t, "acme")
	c := fixture.WithToken(acme, acme.Key(t, tenants.ManageCustomObjects))
	c.Want(t, 200, http.MethodPost, fixture.ObjectsPath, `{"name":"page","label":"Page","label_plural":"Pages","schema":{"text":{"title":"Text","type":"Text"}}}`)
	const records = fixture.ObjectsPath + "/page/records"
	long := strings.Repeat("日", 9_999)
	for i, text := range []string{long + "b", "a", long + "a", long + "b", ""} {
		c.Want(t, 200, http.MethodPost, records, fmt.Sprintf(`{"external_id":"%d","values":{"text":"%s"}}`, i, text))
	}
	for sort, want := range map[string]string{"text": "4 1 2 0 3", "-text": "3 0 2 1 4", "text,-external_id": "4 1 2 3 0"} {
		if got := sorted(t, c, records, sort, "external_id"); got != want {
			t.Errorf("by %s: %s, want %s", sort, got, want)
		}
	}
	a := c.Want(t, 200, http.MethodGet, records+"?sort=-text&per_page=2&after=", "")
	next, last := a.Field("next").(string), a.Field("results").([]any)[1].(map[string]any)["id"].(string)
	c.Want(t, 422, http.MethodGet, records+"?sort=text&after="+next, "", "after must be the value of next in an answer with the same sort")
	c.Want(t, 422, http.MethodGet, records+"?sort=-text&filters[external_id]=1&after="+next, "", "after must be the value") // where one of another list is, is nobody's to ask
	c.Want(t, 200, http.MethodDelete, records+"/"+last, "")
	c.Want(t, 200, http.MethodGet, records+"?sort=-text&per_page=2&after="+next, "", `"external_id":"1"`) // its text is still known
	c.Want(t, 200, http.MethodDelete, records+"/"+last+"?purge=true", "")
	c.Want(t, 422, http.MethodGet, records+"?sort=-text&after="+next, "", "after must be the value")
}
