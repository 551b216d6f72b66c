package store

import (
	"strconv"
	"strings"
)

// generationMark separates a backend from a generation in the name of a place. Names of backends do not contain it.
const generationMark = "."

// PlaceName names a place for an organization's documents: a backend, and the generation of the workspace there. A
// backend can hold several generations of an organization at a time, one of which is in use. The name of generation 0
// is that of the backend. Wherever this package takes the backend of one organization, it takes such a name.
func PlaceName(backend string, generation int64) string {
	if generation == 0 {
		return BackendName(backend)
	}
	return BackendName(backend) + generationMark + strconv.FormatInt(generation, 10)
}

// SplitPlace returns the backend and the generation of a place.
func SplitPlace(name string) (backend string, generation int64) {
	backend, number, _ := strings.Cut(BackendName(name), generationMark)
	generation, _ = strconv.ParseInt(number, 10, 64) // 0 if there is none
	return backend, generation
}

const (
	controlName = "control"
	orgPrefix   = "org-"
)

// workspaceName returns the name of an organization's workspace of generation 0.
func workspaceName(org int64) string { return orgPrefix + strconv.FormatInt(org, 10) }

// placeOf returns the backend of a place, and the name that the organization's workspace has there.
func placeOf(org int64, name string) (backend, workspace string) {
	backend, generation := SplitPlace(name)
	if workspace = workspaceName(org); generation > 0 {
		workspace += "-" + strconv.FormatInt(generation, 10)
	}
	return backend, workspace
}

// orgOf returns the organization of a workspace with its generation; 0 if the name is not that of an organization's
// workspace.
func orgOf(workspace string) (org, generation int64) {
	number, rest, _ := strings.Cut(strings.TrimPrefix(workspace, orgPrefix), "-")
	org, _ = strconv.ParseInt(number, 10, 64)
	if rest != "" {
		generation, _ = strconv.ParseInt(rest, 10, 64)
	}
	if _, is := placeOf(org, PlaceName("", generation)); org <= 0 || is != workspace {
		return 0, 0
	}
	return org, generation
}

// ofOrganization reports whether a workspace is an organization's.
func ofOrganization(workspace string) bool {
	org, _ := orgOf(workspace)
	return org != 0
}

// Home returns the backend and the workspace of an organization at a place, like default/org-1.
func Home(org int64, place string) string {
	backend, workspace := placeOf(org, place)
	return backend + "/" + workspace
}
