package gateway

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"tenantry/config"
)

// doubts returns what is seldom meant about the installation: serve warns of it at its start, and doctor
// names it.
func (s *Services) doubts() []config.Warning {
	found := slices.Clone(s.cfg.Warnings)
	for _, folder := range s.folders() {
		if d, err := judgeFolder(folder); err != nil {
			found = append(found, config.Warning{About: "data", Says: err.Error(), Advice: "nothing starts on it again until then"})
		} else if d != nil {
			found = append(found, *d)
		}
		if d := judgeAbove(folder); d != nil && !slices.Contains(found, *d) {
			found = append(found, *d)
		}
	}
	if s.proxied.Load() {
		found = append(found, proxyDoubt())
	}
	return found
}

// warn tells the log of a doubt.
func (s *Services) warn(ctx context.Context, d config.Warning) {
	s.log.WarnContext(ctx, "check the settings", "about", d.About, "says", d.Says, "advice", d.Advice)
}

// folders are those that hold data.
func (s *Services) folders() []string {
	all := []string{s.cfg.Data}
	for name := range s.cfg.Backends {
		if dir := s.cfg.BackendDir(name); !s.cfg.EngineOf(name).Shared && !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	slices.Sort(all)
	return all
}

// judgeFolder returns what is doubtful about who else may use a folder that holds data, nil for nothing, or where it is
// not there yet. The error says that everybody on the machine may put files into it, or take some away.
func judgeFolder(folder string) (*config.Warning, error) {
	info, err := os.Stat(folder)
	if err != nil || runtime.GOOS == "windows" { // where a mode says nothing
		return nil, nil //nolint:nilerr // whoever opens it tells
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		return nil, fmt.Errorf("the folder %[1]s can be written by everybody on this machine (mode %04[2]o): chmod 700 %[1]s, or name a folder in it",
			folder, mode)
	case mode&0o020 != 0:
		says := fmt.Sprintf("the group of %s may write to it (mode %04o)", folder, mode)
		return &config.Warning{About: "data", Says: says, Advice: "chmod 700 " + folder + ", unless the group is this user's alone"}, nil
	case mode&0o044 != 0:
		says := fmt.Sprintf("others than the owner of %s may list it (mode %04o)", folder, mode)
		return &config.Warning{About: "data", Says: says, Advice: "chmod 700 " + folder}, nil
	}
	return nil, nil
}

// judgeAbove returns a doubt where everybody on the machine may put another folder in the place of this one, or of one
// that it lies in; nil where nobody may. It is not refused, since a volume
// that a single container has is often made so.
func judgeAbove(folder string) *config.Warning {
	folder, err := filepath.Abs(folder)
	if err != nil || runtime.GOOS == "windows" {
		return nil
	}
	for above := filepath.Dir(folder); above != folder; folder, above = above, filepath.Dir(above) {
		if info, err := os.Stat(above); err == nil && info.Mode()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			says := fmt.Sprintf("everybody on this machine may put another folder in the place of %s, for all may write to %s (mode %04o)",
				folder, above, info.Mode().Perm())
			return &config.Warning{About: "data", Says: says, Advice: "chmod o-w " + above + " (or chmod +t), unless nobody else can reach it"}
		}
	}
	return nil
}

// noteProxy tells once that a proxy names callers whom nobody believes it.
func (s *Services) noteProxy(ctx context.Context) {
	if !s.proxied.Load() && !s.proxied.Swap(true) {
		s.warn(ctx, proxyDoubt())
	}
}

func proxyDoubt() config.Warning {
	return config.Warning{
		About: "trusted_proxies",
		Says: "requests arrive with X-Forwarded-For or Forwarded, and no proxy is trusted: " +
			"all callers behind it count as one address, whose limits and lock-outs they share",
		Advice: "name the network of the proxy in trusted_proxies, or have it send neither",
	}
}

// behindTLS reports whether something else ends TLS, and so names callers.
func (s *Services) behindTLS() bool { return strings.HasPrefix(s.baseURL("x"), "https:") }
