//go:build !linux

package maintest

func inMemory() {}
