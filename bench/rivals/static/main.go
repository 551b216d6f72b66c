// Command static serves a folder with http.FileServer, to measure the server of the standard library alone.
package main

import (
	"net/http"
	"os"

	"tenantry/bench/rivals/rival"
)

func main() { rival.Exit(run(os.Args[1])) }

func run(folder string) error {
	l, err := rival.Listen()
	if err == nil {
		err = rival.Ready(l, "")
	}
	if err != nil {
		return err
	}
	return http.Serve(l, http.FileServer(http.Dir(folder)))
}
