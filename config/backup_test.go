package config_test

import (
	"testing"
	"time"

	"tenantry/config"
)

func TestBackupDue(t *testing.T) {
	t.Parallel()
	day := func(hour, minute int) time.Time { return time.Date(2026, 11, 27, hour, minute, 0, 0, time.UTC) }
	for _, tt := range []struct {
		at   []string
		now  time.Time
		want time.Time
	}{
		{[]string{"03:00"}, day(3, 0), day(3, 0)},
		{[]string{"03:00"}, day(2, 59), day(3, 0).Add(-24 * time.Hour)},
		{[]string{"03:00", "15:30"}, day(12, 0), day(3, 0)},
		{[]string{"15:30", "03:00"}, day(23, 0), day(15, 30)},
		{[]string{"03:00", "15:30"}, day(0, 1), day(15, 30).Add(-24 * time.Hour)},
		{[]string{"03:00"}, day(4, 0).In(time.FixedZone("", -8*3600)), day(3, 0)},
		{nil, day(4, 0), time.Time{}},
	} {
		if got := (&config.Backup{At: tt.at}).Due(tt.now); !got.Equal(tt.want) {
			t.Errorf("%v at %v: got %v, want %v", tt.at, tt.now, got, tt.want)
		}
	}
}
