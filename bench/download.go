package main

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
)

// downloaded is the size in bytes of the file that all sides serve.
const downloaded = 10_000_000

// downloadFile returns the path of a file of that size, alone in its folder.
func (b *bench) downloadFile() (string, error) {
	return memoize(b, "a file of 10 MB", func() (string, error) {
		content := make([]byte, downloaded)
		_, _ = rand.NewChaCha8([32]byte{}).Read(content) // it never fails
		path := filepath.Join(b.dir, "download", "download.bin")
		return path, errors.Join(os.Mkdir(filepath.Dir(path), 0o700), os.WriteFile(path, content, 0o600))
	})
}

// downloads uploads the file and requests it at its signed address. When its time is over, wrk cuts answers off, at most
// one of each connection, and Tenantry counts these as failed.
func (p place) downloads() source {
	return func(ctx context.Context, b *bench) (*traffic, error) {
		t, c, err := p(ctx, b)
		if err != nil {
			return nil, err
		}
		path, err := b.downloadFile()
		if err != nil {
			return nil, err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		const to = "/api/files/upload?filename=download.bin&mimetype=application/octet-stream"
		_, body, err := t.ask(ctx, c.request(http.MethodPost, to, string(content)))
		if err != nil {
			return nil, err
		}
		var answer struct {
			Data struct{ Results []struct{ URL string } }
		}
		if err := json.Unmarshal(body, &answer); err != nil {
			return nil, err
		}
		at, err := url.Parse(answer.Data.Results[0].URL)
		if err != nil {
			return nil, err
		}
		if o, is := c.(org); is {
			o.key = "" // the address is the right
			c = o
		}
		t.requests, t.spread = [][]byte{c.request(http.MethodGet, at.RequestURI(), "")}, even
		return t, nil
	}
}

// staticFile requests the file of a server of the standard library.
func staticFile(ctx context.Context, b *bench) (*traffic, error) {
	path, err := b.downloadFile()
	if err != nil {
		return nil, err
	}
	p, err := b.rival(ctx, "static", "static", filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	return &traffic{process: p, requests: [][]byte{p.request(http.MethodGet, "/download.bin", "")}, spread: even}, nil
}

// recordFile requests the file of a record of PocketBase.
func recordFile(ctx context.Context, b *bench) (*traffic, error) {
	path, err := b.downloadFile()
	if err != nil {
		return nil, err
	}
	nothing, err := b.file(bundle{name: "nothing"})
	if err != nil {
		return nil, err
	}
	const name = "pocketbase-download"
	p, err := b.rival(ctx, name, "pocketbase", filepath.Join(b.dir, name), nothing, asItComes, path)
	if err != nil {
		return nil, err
	}
	request := p.request(http.MethodGet, "/api/files/downloads/downloads000001/download.bin", "")
	return &traffic{process: p, requests: [][]byte{request}, spread: even}, nil
}
