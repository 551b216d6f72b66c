package config

import (
	"errors"
	"net"
	"reflect"
	"slices"
)

// Reload returns c with the values that next has for the settings of Reloadable. changed names those that differ, and
// remaining the other settings that differ: they take effect at the next start. Error: the values do not fit together
// with those that remain.
func (c Config) Reload(next Config) (merged Config, changed, remaining []string, err error) {
	merged = c
	walk(reflect.ValueOf(&merged).Elem(), "", false, func(name string, at reflect.Value, reloads bool) {
		to := settingOf(reflect.ValueOf(&next).Elem(), name)
		switch {
		case reflect.DeepEqual(at.Interface(), to.Interface()):
		case reloads:
			changed = append(changed, name)
			at.Set(to)
		default:
			remaining = append(remaining, name)
		}
	})
	var l loader
	merged.check(descriptorLimit(), l.fault)
	var faults []error
	for _, f := range l.faults {
		faults = append(faults, f)
	}
	slices.Sort(changed)
	slices.Sort(remaining)
	return merged, changed, remaining, errors.Join(faults...)
}

// Reloadable returns the names of the settings that a running gateway reads again, in alphabetical order.
func Reloadable() (names []string) {
	c := Default()
	walk(reflect.ValueOf(&c).Elem(), "", false, func(name string, _ reflect.Value, reloads bool) {
		if reloads {
			names = append(names, name)
		}
	})
	slices.Sort(names)
	return names
}

// walk calls do for each setting below at. A map is one setting.
func walk(at reflect.Value, name string, reloads bool, do func(name string, at reflect.Value, reloads bool)) {
	if at.Kind() == reflect.Map || !isSection(at) {
		do(name, at, reloads)
		return
	}
	for i := range at.NumField() {
		tag := at.Type().Field(i).Tag
		if label := tag.Get("yaml"); label != "-" {
			walk(at.Field(i), below(name, label), tag.Get("reload") == "true", do)
		}
	}
}

// settingOf returns the setting with that name below at.
func settingOf(at reflect.Value, name string) (found reflect.Value) {
	walk(at, "", false, func(n string, v reflect.Value, _ bool) {
		if n == name {
			found = v
		}
	})
	return found
}

// isLocal reports whether only this machine reaches the gateway.
func (c *Config) isLocal() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	return err == nil && isLoopback(host)
}
