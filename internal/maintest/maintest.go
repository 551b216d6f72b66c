// Package maintest prepares a package's tests to run concurrently. It is for TestMain.
package maintest

import (
	"flag"
	"os"
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

// parallel is how many tests of a package run at the same time. There can be more than processors, because most of them
// wait for leases, deadlines and disks.
const parallel = "8"

// Leakless runs the tests and ends the program. It fails if goroutines outlive the tests.
func Leakless(m *testing.M) {
	prepare()
	goleak.VerifyTestMain(m)
}

// Run runs the tests and returns the code to end the program with.
func Run(m *testing.M) int {
	prepare()
	return m.Run()
}

// prepare runs more tests at the same time, keeps their files in memory, and collects garbage less often, unless flags
// or variables set these.
func prepare() {
	flag.Parse()
	if flag.Lookup("test.bench").Value.String() == "" { // benchmarks measure the disk too
		inMemory()
	}
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set {
		if err := flag.Set("test.parallel", parallel); err != nil {
			panic(err)
		}
	}
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
	}
}
