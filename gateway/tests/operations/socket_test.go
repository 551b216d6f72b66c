package operations

import (
	"fmt"
	"strings"
	"testing"

	"tenantry/gateway/control"
	"tenantry/gateway/gatewaytest"
)

// TestCommandsOfAnySize: the request of a command with input may be as large over the socket as within the process.
func TestCommandsOfAnySize(t *testing.T) {
	t.Parallel()
	g := gatewaytest.Start(t)
	g.Org(t, "acme")
	var header, cells []string
	columns := map[string][]string{}
	for i := range 500 {
		name := fmt.Sprintf("Übliche Spalte Nummer %d", i)
		header, cells, columns[name] = append(header, name), append(cells, "x"), []string{fmt.Sprintf("column_number_%d", i)}
	}
	file := strings.Join(header, ",") + "\n" + strings.Join(cells, ",") + "\n"
	for way, client := range map[string]*control.Client{"in process": g.Commands, "socket": dial(t, g)} {
		in := control.ImportRequest{Org: "acme", As: "contacts", Format: "csv", Map: columns, DryRun: true}
		if _, err := client.Do(t.Context(), "import", in, control.Streams{Input: strings.NewReader(file)}); err != nil {
			t.Errorf("%s: %v", way, err)
		}
	}
}
