// Command tenantry is a multi-tenant workspace API gateway; tenantry --help names what it does.
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
	// It comes from every connection that the other side has closed; the write says so itself.
	signal.Ignore(syscall.SIGPIPE)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	cli.Setup(os.Stderr)
	return cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ())
}
