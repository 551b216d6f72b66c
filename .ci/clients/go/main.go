// Command goclient calls every operation of the OpenAPI document with the client that oapi-codegen generated in package
// client.
//
// Usage: goclient DOCUMENT CALLS. Each call must return a typed answer with everything that the server sent, and without
// its credential a typed refusal.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"reflect"
	"strings"

	"goclient/client"
)

type call struct {
	ID                          string
	Path                        string
	Params, Query, Header, Body map[string]any
	Headers                     map[string]string
	Code                        int
	Streams                     bool
}

type document struct {
	Paths map[string]map[string]struct{ OperationID string }
}

func main() {
	var given struct {
		URL, Host string
		Calls     []call
		LeftOut   []string `json:"left_out"`
	}
	var described document
	read(os.Args[1], &described)
	read(os.Args[2], &given)
	calls := map[string]bool{}
	for _, id := range given.LeftOut {
		calls[id] = true
	}
	for _, c := range given.Calls {
		calls[c.ID] = true
	}
	made, err := client.NewClientWithResponses(given.URL)
	if err != nil {
		panic(err)
	}
	count, faults := 0, 0
	for _, methods := range described.Paths {
		for _, op := range methods {
			if !calls[op.OperationID] {
				faults++
				fmt.Printf("there is no call of %s\n", op.OperationID)
			}
		}
	}
	for _, c := range given.Calls {
		count++
		if err := try(made, c, given.Host); err != nil {
			faults++
			fmt.Printf("%s: %v\n", c.ID, err)
		}
	}
	fmt.Printf("Go: %d operations\n", count)
	if faults > 0 {
		os.Exit(1)
	}
}

func read(path string, into any) {
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, into)
	}
	if err != nil {
		panic(err)
	}
}

// try makes the call, first without its credential if it has one.
func try(made *client.ClientWithResponses, c call, host string) (err error) {
	defer func() {
		if r := recover(); r != nil { // reflection panics if an argument does not fit
			err = fmt.Errorf("%v", r)
		}
	}()
	if len(c.Headers) > 0 {
		refused := send(made, c, host, nil)
		if typed := refused.FieldByName("JSON403"); typed.IsNil() {
			return fmt.Errorf("without its credential: %s", body(refused))
		}
	}
	answered := send(made, c, host, c.Headers)
	r := answered.FieldByName("HTTPResponse").Interface().(*http.Response)
	if r.StatusCode != c.Code || c.Streams && len(body(answered)) == 0 {
		return fmt.Errorf("%d %s", r.StatusCode, body(answered))
	}
	if c.Streams || c.Code == http.StatusNoContent {
		return nil
	}
	typed := answered.FieldByName(fmt.Sprint("JSON", c.Code))
	if typed.IsNil() {
		return fmt.Errorf("%s", body(answered))
	}
	for i := range typed.NumMethod() {
		if name := typed.Type().Method(i).Name; !strings.HasPrefix(name, "As") || !strings.HasSuffix(name, "Success") {
			continue // not a union of a success and failures
		}
		out := typed.Method(i).Call(nil)
		if !out[1].IsNil() {
			return fmt.Errorf("%v", out[1])
		}
		typed = out[0]
		break
	}
	typed = reflect.Indirect(typed)
	if !typed.FieldByName("Data").IsValid() || typed.FieldByName("Status").String() != "ok" {
		return fmt.Errorf("%s was read as %v", body(answered), typed)
	}
	var sent struct{ Data any }
	if err := json.Unmarshal(body(answered), &sent); err != nil {
		return err
	}
	raw, err := json.Marshal(typed.FieldByName("Data").Interface())
	if err != nil {
		return err
	}
	var kept any
	if err := json.Unmarshal(raw, &kept); err != nil {
		return err
	}
	if !reflect.DeepEqual(sent.Data, kept) {
		return fmt.Errorf("%s was read as %s", body(answered), raw)
	}
	return nil
}

func body(answer reflect.Value) []byte { return answer.FieldByName("Body").Bytes() }

// send calls the client's method for the operation with path parameters in their order, then the others, then the body.
// It returns the client's answer.
func send(made *client.ClientWithResponses, c call, host string, headers map[string]string) reflect.Value {
	method := reflect.ValueOf(made).MethodByName(strings.ToUpper(c.ID[:1]) + c.ID[1:] + "WithResponse")
	t := method.Type()
	arguments := []reflect.Value{reflect.ValueOf(context.Background())}
	give := func(v any) {
		raw, err := json.Marshal(v)
		if err != nil {
			panic(err)
		}
		argument := reflect.New(t.In(len(arguments)))
		decoder := json.NewDecoder(strings.NewReader(string(raw)))
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(argument.Interface()); err != nil {
			panic(err)
		}
		arguments = append(arguments, argument.Elem())
	}
	for _, part := range strings.Split(c.Path, "/") {
		if strings.HasPrefix(part, "{") {
			give(c.Params[strings.Trim(part, "{}")])
		}
	}
	if len(arguments) < t.NumIn()-1 && t.In(len(arguments)).Kind() == reflect.Pointer {
		maps.Copy(c.Query, c.Header)
		give(c.Query)
	}
	if c.Body != nil {
		give(c.Body)
	}
	edit := client.RequestEditorFn(func(_ context.Context, r *http.Request) error {
		r.Host = host
		for name, value := range headers {
			r.Header.Set(name, value)
		}
		return nil
	})
	out := method.Call(append(arguments, reflect.ValueOf(edit)))
	if !out[1].IsNil() {
		panic(out[1].Interface())
	}
	return out[0].Elem()
}
