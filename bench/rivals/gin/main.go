// Command gin answers a GET with the headers and the body of a file, to measure the framework alone.
package main

import (
	"encoding/json"
	"net/http"
	"os"

	"github.com/gin-gonic/gin"

	"tenantry/bench/rivals/rival"
)

func main() { rival.Exit(run(os.Args[1])) }

func run(path string) error {
	var answer struct {
		Header map[string]string
		Body   string
	}
	raw, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(raw, &answer)
	}
	if err != nil {
		return err
	}
	contentType, body := answer.Header["Content-Type"], []byte(answer.Body)
	delete(answer.Header, "Content-Type")
	gin.SetMode(gin.ReleaseMode)
	engine := gin.New()
	engine.GET("/api/custom-reports/:id", func(c *gin.Context) {
		for name, value := range answer.Header {
			c.Header(name, value)
		}
		c.Data(http.StatusOK, contentType, body)
	})
	l, err := rival.Listen()
	if err == nil {
		err = rival.Ready(l, "")
	}
	if err != nil {
		return err
	}
	return http.Serve(l, engine)
}
