package console

import (
	"encoding/json"
	"net/url"
	"strconv"

	"tenantry/internal/strictjson"
	"tenantry/operation"
)

// lacking returns the parameter of the operation's path that names one of the rows of a page.
func lacking(row *operation.Row, path map[string]string) string {
	for _, p := range row.Params {
		if _, has := path[p.Name]; p.In == operation.InPath && !has {
			return p.Name
		}
	}
	return ""
}

// webAddress returns the text where it is the address of a page, else nothing.
func webAddress(text string) string {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return ""
	}
	return text
}

func pretty(v strictjson.Value) string {
	if v.Is == strictjson.Null {
		return ""
	}
	out, err := json.MarshalIndent(v.Any(), "", "  ")
	if err != nil {
		return ""
	}
	return string(out)
}

// parse reads what the program declares as JSON.
func parse(declared any) strictjson.Value {
	raw, err := json.Marshal(declared)
	if err != nil {
		return strictjson.Value{}
	}
	var p strictjson.Parser
	v, _ := p.Parse(string(raw)) // the program wrote it
	return v
}

func itoa(n int) string { return strconv.Itoa(n) }

// count returns a figure of a record; 0 where it has none.
func count(record strictjson.Value, name string) int {
	n, _ := strconv.Atoi(record.Get(name).Text)
	return n
}
