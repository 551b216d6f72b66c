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
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGPIPE)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	cli.Setup(os.Stderr)
	return cli.Main(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr, os.Environ())
}
