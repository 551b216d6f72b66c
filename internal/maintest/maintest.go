// Package maintest prepares a package's tests to run together. It is for TestMain.
package maintest

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

// together is how many tests of a package run at the same time: most of them wait, for leases, deadlines
// and disks, so that there can be many more than processors.
const together = "8"

// Leakless runs the tests and ends the program. It fails where goroutines outlive them.
func Leakless(m *testing.M) {
	prepare()
	goleak.VerifyTestMain(m)
}

// Run runs the tests and returns the code to end the program with.
func Run(m *testing.M) int {
	prepare()
	return m.Run()
}

// prepare makes more tests run at the same time, their files be kept in memory, and that be collected more rarely, but
// where whoever started them said how.
func prepare() {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" { // which is about the disk, too
		inMemory()
	}
	said := false
	flag.Visit(func(f *flag.Flag) { said = said || f.Name == "test.parallel" })
	if !said {
		if err := flag.Set("test.parallel", together); err != nil {
			panic(err)
		}
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
