package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const sentEvents = 50_000 // events that are sent to one receiver

// delivering measures how many events a second one process delivers to a receiver on this machine, which answers at once.
// They wait while the webhook is paused, so that only deliveries are measured.
func delivering(o place) func(context.Context, *bench) ([]fact, error) {
	return func(ctx context.Context, b *bench) ([]fact, error) {
		t, c, err := o(ctx, b)
		if err != nil {
			return nil, err
		}
		ask := func(method, path, body string) (string, error) {
			_, text, err := t.ask(ctx, c.request(method, path, body))
			if err == nil && !strings.HasPrefix(string(text), `{"status":"ok"`) {
				err = fmt.Errorf("%s %s: %s", method, path, text)
			}
			return string(text), err
		}
		n := int64(sentEvents / b.small)
		var came atomic.Int64
		done := make(chan struct{})
		var once sync.Once
		l, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		receiver := &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			if came.Add(1) == n {
				once.Do(func() { close(done) })
			}
		})}
		go func() { _ = receiver.Serve(l) }()
		defer receiver.Close()

		account, err := ask(http.MethodPost, "/api/service-accounts", `{"name":"receiver","permissions":["manage_custom_objects"]}`)
		if err != nil {
			return nil, err
		}
		_, id, _ := strings.Cut(account, `"id":"`)
		id, _, _ = strings.Cut(id, `"`)
		hook := fmt.Sprintf(`{"name":"receiver","url":"http://%s/","account":%q,"kinds":["record.created"]}`, l.Addr(), id)
		if _, err = ask(http.MethodPost, "/api/webhooks", hook); err == nil {
			_, err = ask(http.MethodPost, "/api/webhooks/receiver/pause", "")
		}
		records := make([]string, 500)
		for i := range records {
			records[i] = `{"values":{"species":"oak","height":21.5}}`
		}
		bulk := `{"records":[` + strings.Join(records, ",") + `]}`
		for made := int64(0); err == nil && made < n; made += int64(len(records)) {
			_, err = ask(http.MethodPost, "/api/custom/objects/tree/records/bulk", bulk)
		}
		if err != nil {
			return nil, err
		}
		began := time.Now()
		if _, err = ask(http.MethodPost, "/api/webhooks/receiver/resume", ""); err != nil {
			return nil, err
		}
		select {
		case <-done:
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(5 * time.Minute):
			return nil, fmt.Errorf("%d of %d events were delivered in five minutes", came.Load(), n)
		}
		rate := float64(n) / time.Since(began).Seconds()
		return []fact{{"deliveries to one receiver, of " + withCommas(int(n)) + " events that waited", number(rate) + " a second", "5,000"}}, nil
	}
}
