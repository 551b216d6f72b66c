package tenants

import (
	"slices"
	"testing"
)

func TestScopeOnlyNarrows(t *testing.T) {
	t.Parallel()
	on := &Tenant{Org: Organization{Features: map[string]bool{FeatureTeams: true}}}
	off := &Tenant{}
	tests := []struct {
		name      string
		tenant    *Tenant
		own       []string
		requested []string
		all       bool
		teams     []string
	}{
		{"no limit, nothing requested", on, nil, nil, true, nil},
		{"no limit, requested", on, nil, []string{"a"}, false, []string{"a"}},
		{"limited, nothing requested", on, []string{"a", "b"}, nil, false, []string{"a", "b"}},
		{"limited, part requested", on, []string{"a", "b"}, []string{"b", "c"}, false, []string{"b"}},
		{"limited, foreign requested", on, []string{"a"}, []string{"c"}, false, nil},
		{"limited to none, nothing requested", on, []string{}, nil, false, nil},
		{"limited to none, requested", on, []string{}, []string{"a"}, false, nil},
		{"without the feature", off, []string{"a"}, []string{"b"}, true, nil},
	}
	for _, tt := range tests {
		p := &Principal{Kind: ServiceAccount, Teams: tt.own}
		got := p.Scope(tt.tenant, tt.requested)
		if got.All != tt.all || !slices.Equal(got.Teams, tt.teams) {
			t.Errorf("%s: got %+v, want got.All = %v and %v", tt.name, got, tt.all, tt.teams)
		}
	}
}

func TestServiceAccountIsNeverAdmin(t *testing.T) {
	t.Parallel()
	p := &Principal{Kind: ServiceAccount, Admin: true}
	if p.IsAdmin() || p.May(Contacts) {
		t.Error("a service account is an administrator")
	}
}
