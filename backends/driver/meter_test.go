package driver_test

import (
	"errors"
	"testing"

	"tenantry/backends/driver"
)

func TestQuotaAdmitsSmallChangesBeyondIt(t *testing.T) {
	t.Parallel()
	const full = 10 << 20
	quota := driver.Quota{Documents: 10, Bytes: full}
	for _, test := range []struct {
		name     string
		used, by driver.Usage
		refused  string
	}{
		{"the last document", driver.Usage{Documents: 9}, driver.Usage{Documents: 1}, ""},
		{"one more", driver.Usage{Documents: 10}, driver.Usage{Documents: 1}, "documents"},
		{"the last bytes", driver.Usage{Bytes: full - 5000}, driver.Usage{Bytes: 5000}, ""},
		{"a large change", driver.Usage{Bytes: full}, driver.Usage{Bytes: 4097}, "bytes"},
		{"a small document", driver.Usage{Bytes: full}, driver.Usage{Documents: 1, Bytes: 1}, "bytes"},
		{"a small change", driver.Usage{Bytes: full}, driver.Usage{Bytes: 4096}, ""},
		{"the last small change", driver.Usage{Bytes: full + 1<<20 - 1}, driver.Usage{Bytes: 1}, ""},
		{"small changes without end", driver.Usage{Bytes: full + 1<<20}, driver.Usage{Bytes: 1}, "bytes"},
		{"what shrinks", driver.Usage{Documents: 99, Bytes: 99 * full}, driver.Usage{Bytes: -1}, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			err := quota.Admit(test.used, test.by)
			var refused string
			if got := new(driver.QuotaError); errors.As(err, &got) {
				refused = got.Limit
			}
			if refused != test.refused {
				t.Errorf("Admit(%v, %v) = %v, which refuses %q; want %q", test.used, test.by, err, refused, test.refused)
			}
		})
	}

	used, by := driver.Usage{Documents: 1 << 40, Bytes: 1 << 50}, driver.Usage{Documents: 1, Bytes: 1 << 20}
	if err := (driver.Quota{}).Admit(used, by); err != nil {
		t.Errorf("Admit of an empty quota = %v, want nil", err)
	}
}
