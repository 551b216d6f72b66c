package contract

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"tenantry/gateway/gatewaytest"
	"tenantry/gateway/tests/fixture"
)

// TestTwoLengthsEndTheConnection checks that a request with two different lengths is answered and its connection
// closed, while others continue.
func TestTwoLengthsEndTheConnection(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	g.Org(t, "acme")
	const head, chunked = "POST /auth/sign-in HTTP/1.1\r\nHost: acme.localhost\r\nContent-Type: application/json\r\n", "2\r\n{}\r\n0\r\n\r\n"
	plain := "GET /api/contacts HTTP/1.1\r\nHost: acme.localhost\r\n\r\n"
	for name, c := range map[string]struct {
		requests []string
		closes   bool
	}{
		"chunks alone":       {[]string{head + "Transfer-Encoding: chunked\r\n\r\n" + chunked}, false},
		"a length alone":     {[]string{head + "Content-Length: 2\r\n\r\n{}"}, false},
		"both":               {[]string{head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked}, true},
		"both, in capitals":  {[]string{head + "TRANSFER-ENCODING: chunked\r\nCONTENT-LENGTH: 2\r\n\r\n" + chunked}, true},
		"both, after others": {[]string{plain, plain, head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked}, true},
		"both, at once":      {[]string{plain + head + "Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n" + chunked, ""}, true},
		"HTTP/1.0, kept":     {[]string{strings.ReplaceAll(head, "1.1", "1.0") + "Connection: keep-alive\r\nContent-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n{}"}, true},
		"both, in pieces":    {append(strings.Split(head+"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "-"), "\r\n"+chunked), true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn := fixture.Dial(t, g.App.Addr())
			reader := bufio.NewReader(conn)
			answers := len(c.requests)
			if name == "both, in pieces" {
				answers = 1
			}
			for i, text := range c.requests {
				if name == "both, in pieces" && i > 0 && i < len(c.requests)-1 {
					text = "-" + text
				}
				fixture.Send(t, conn, text)
				if answers == 1 && i < len(c.requests)-1 {
					continue
				}
				resp, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Fatalf("request %d: got %v, want no error", i, err)
				}
				body, err := io.ReadAll(resp.Body)
				if err != nil || !strings.Contains(string(body), `"status":"failed"`) {
					t.Errorf("request %d: got %v %s, want no error with %q", i, err, body, `"status":"failed"`)
				}
				if last := i == len(c.requests)-1; resp.Close != (c.closes && last) {
					t.Errorf("request %[1]d: closed = %[2]v, want %[4]v: %[3]v",
						i, resp.Close, resp.Header, c.closes && last)
				}
			}
			if c.closes {
				if n, err := reader.Read(make([]byte, 1)); err != io.EOF {
					t.Errorf("after its end: got %d bytes, %v, want %v", n, err, io.EOF)
				}
			} else {
				fixture.Send(t, conn, plain)
				if _, err := http.ReadResponse(reader, nil); err != nil {
					t.Error(fmt.Errorf("the next request: %w", err))
				}
			}
		})
	}
}
