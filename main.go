// Command tenantry is a multi-tenant workspace API gateway; tenantry --help lists its commands.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"tenantry/gateway/cli"
)

func main() { os.Exit(run()) }

func run() int {
	// Every write to a closed connection raises SIGPIPE; the error of the write is enough.
	signal.Ignore(syscall.SIGPIPE)
	signals := make(chan os.Signal, 8)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	cli.Setup(os.Stderr)
	return cli.Main(context.Background(), os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ(), signals)
}
