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

// settingWarnings returns what is probably a mistake in the settings or the installation. The start logs it, and doctor
// reports it.
func (s *Services) settingWarnings() []config.Warning {
	found := slices.Clone(s.cfg.Warnings)
	for _, folder := range folders(&s.cfg) {
		if d, err := checkFolder(folder); err != nil {
			found = append(found, config.Warning{
				About: "data", Says: err.Error(), Advice: "the gateway does not start again until this is corrected",
			})
		} else if d != nil {
			found = append(found, *d)
		}
		if d := checkParents(folder); d != nil && !slices.Contains(found, *d) {
			found = append(found, *d)
		}
	}
	if s.proxied.Load() {
		found = append(found, proxyDoubt())
	}
	return found
}

// logWarning logs a doubt.
func (s *Services) logWarning(ctx context.Context, d config.Warning) {
	s.log.WarnContext(ctx, "check the settings", "about", d.About, "says", d.Says, "advice", d.Advice)
}

// folders returns the folders that hold data, sorted.
func folders(cfg *config.Config) []string {
	all := []string{cfg.Data}
	for name := range cfg.Backends {
		if dir := cfg.BackendDir(name); !cfg.EngineOf(name).Shared && !slices.Contains(all, dir) {
			all = append(all, dir)
		}
	}
	if dir := cfg.FilesDir(); cfg.Files.Store != config.FilesS3 && !slices.Contains(all, dir) {
		all = append(all, dir)
	}
	slices.Sort(all)
	return all
}

// checkFolder checks who else may use a folder that holds data. It returns a doubt if the group can write to it or
// others can list it, and an error if everybody on the machine can write to it. It returns nil if the folder does not
// exist yet.
func checkFolder(folder string) (*config.Warning, error) {
	info, err := os.Stat(folder)
	if err != nil || runtime.GOOS == "windows" { // a mode says nothing on Windows
		return nil, nil //nolint:nilerr // opening it reports the error
	}
	switch mode := info.Mode().Perm(); {
	case mode&0o002 != 0:
		return nil, fmt.Errorf("the folder %[1]s can be written by everybody on this machine (mode %04[2]o): chmod 700 %[1]s, or name a folder in it",
			folder, mode)
	case mode&0o020 != 0:
		says := fmt.Sprintf("the group of %s may write to it (mode %04o)", folder, mode)
		return &config.Warning{About: "data", Says: says, Advice: "chmod 700 " + folder + ", unless the group is this user's alone"}, nil
	case mode&0o044 != 0:
		says := fmt.Sprintf("users other than the owner of %s may list it (mode %04o)", folder, mode)
		return &config.Warning{About: "data", Says: says, Advice: "chmod 700 " + folder}, nil
	}
	return nil, nil
}

// checkParents returns a doubt if everybody on the machine can replace the folder, or one that contains it, by another;
// otherwise nil. It is no error, because a volume that only one container mounts is often made this way.
func checkParents(folder string) *config.Warning {
	folder, err := filepath.Abs(folder)
	if err != nil || runtime.GOOS == "windows" {
		return nil
	}
	for parent := filepath.Dir(folder); parent != folder; folder, parent = parent, filepath.Dir(parent) {
		if info, err := os.Stat(parent); err == nil && info.Mode()&0o002 != 0 && info.Mode()&fs.ModeSticky == 0 {
			says := fmt.Sprintf("everybody on this machine can replace %s by another folder, because everybody can write to %s (mode %04o)",
				folder, parent, info.Mode().Perm())
			return &config.Warning{
				About: "data", Says: says, Advice: "chmod o-w " + parent + " (or chmod +t), unless nobody else can reach it",
			}
		}
	}
	return nil
}

// noteProxy warns once that a proxy that is not trusted names callers.
func (s *Services) noteProxy(ctx context.Context) {
	if !s.proxied.Load() && !s.proxied.Swap(true) {
		s.logWarning(ctx, proxyDoubt())
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

// behindTLS reports whether organizations have https addresses: a proxy then terminates TLS and should name callers.
func (s *Services) behindTLS() bool { return strings.HasPrefix(s.baseURL("x"), "https:") }
