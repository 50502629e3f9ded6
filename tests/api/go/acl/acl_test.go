// Package acl drives an agent with ACLs on through the official Nomad API client: policies, tokens,
// roles, one-time tokens. The agent's address comes in NOMAD_ADDR; nobody has bootstrapped it.
package acl

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// as is a client with a token's secret; none where it is empty.
func as(t *testing.T, secret string) *api.Client {
	t.Helper()
	if os.Getenv("NOMAD_ADDR") == "" {
		t.Skip("NOMAD_ADDR names no agent")
	}
	config := api.DefaultConfig()
	config.SecretID = secret
	c, err := api.NewClient(config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// refused checks that err says text, with its status.
func refused(t *testing.T, err error, text string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), text) {
		t.Fatalf("%v instead of %q", err, text)
	}
}

const reader = `namespace "default" { policy = "read" }`

func TestACLs(t *testing.T) {
	nobody := as(t, "")
	_, _, err := nobody.ACLTokens().BootstrapOpts("no-uuid", nil)
	refused(t, err, "400 (invalid acl token)")
	made, meta, err := nobody.ACLTokens().BootstrapOpts("2b778dd9-f5f1-6f29-b4b4-9a5fa948757a", nil)
	if err != nil || made.SecretID != "2b778dd9-f5f1-6f29-b4b4-9a5fa948757a" {
		t.Fatalf("%+v, %v", made, err)
	}
	if made.Type != "management" || made.Name != "Bootstrap Token" || !made.Global ||
		made.CreateIndex != meta.LastIndex || made.CreateTime.IsZero() {
		t.Fatalf("%+v at %d", made, meta.LastIndex)
	}
	_, _, err = nobody.ACLTokens().Bootstrap(nil)
	refused(t, err, "400 (ACL bootstrap already done (reset index: ")
	root := as(t, made.SecretID)

	t.Run("policies", func(t *testing.T) { policies(t, root) })
	t.Run("roles", func(t *testing.T) { roles(t, root) })
	t.Run("tokens", func(t *testing.T) { tokens(t, root) })
	t.Run("rights", func(t *testing.T) { rights(t, root) })
	t.Run("one-time", func(t *testing.T) { oneTime(t, root, made) })
}

func policies(t *testing.T, root *api.Client) {
	policy := &api.ACLPolicy{
		Name: "web-vars", Description: "of web", Rules: reader,
		JobACL: &api.JobACL{Namespace: "default", JobID: "web", Group: "g", Task: "t"},
	}
	if _, err := root.ACLPolicies().Upsert(policy, nil); err != nil {
		t.Fatal(err)
	}
	found, _, err := root.ACLPolicies().Info("web-vars", nil)
	if err != nil || found.Rules != reader || *found.JobACL != *policy.JobACL {
		t.Fatalf("%+v, %v", found, err)
	}
	for _, name := range []string{"one", "two"} {
		if _, err := root.ACLPolicies().Upsert(&api.ACLPolicy{Name: name, Rules: reader}, nil); err != nil {
			t.Fatal(err)
		}
	}
	list, _, err := root.ACLPolicies().List(&api.QueryOptions{Prefix: "w"})
	if err != nil || len(list) != 1 || list[0].Name != "web-vars" || list[0].Description != "of web" {
		t.Fatalf("%+v, %v", list, err)
	}
	list, meta, err := root.ACLPolicies().List(&api.QueryOptions{Filter: `Name == "two"`})
	if err != nil || len(list) != 1 || list[0].CreateIndex != meta.LastIndex {
		t.Fatalf("%+v, %v", list, err)
	}
	_, err = root.ACLPolicies().Upsert(&api.ACLPolicy{Name: "bad", Rules: "namespace \"a\" {\n  fly = 1\n}"}, nil)
	refused(t, err, "Invalid or duplicate policy keys: fly (line 2, column 3)")
	if _, err = root.ACLPolicies().Delete("two", nil); err != nil {
		t.Fatal(err)
	}
	_, _, err = root.ACLPolicies().Info("two", nil)
	refused(t, err, "404 (ACL policy not found)")

	// Somebody who waits for a change is told of it.
	done := make(chan error, 1)
	go func() {
		_, _, err := root.ACLPolicies().Info("web-vars", &api.QueryOptions{
			WaitIndex: found.ModifyIndex, WaitTime: time.Minute,
		})
		done <- err
	}()
	policy.Description = "changed"
	if _, err := root.ACLPolicies().Upsert(policy, nil); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

func roles(t *testing.T, root *api.Client) {
	role := &api.ACLRole{Name: "ops", Description: "they", Policies: []*api.ACLRolePolicyLink{
		{Name: "one"}, {Name: "one"},
	}}
	made, _, err := root.ACLRoles().Create(role, nil)
	if err != nil || made.ID == "" || len(made.Policies) != 1 {
		t.Fatalf("%+v, %v", made, err)
	}
	_, _, err = root.ACLRoles().Create(role, nil)
	refused(t, err, "400 (role with name ops already exists)")
	_, _, err = root.ACLRoles().Create(&api.ACLRole{
		Name: "x", Policies: []*api.ACLRolePolicyLink{{Name: "gone"}},
	}, nil)
	refused(t, err, "400 (cannot find policy gone)")
	made.Name = "crew"
	changed, _, err := root.ACLRoles().Update(made, nil)
	if err != nil || changed.Name != "crew" || changed.ID != made.ID {
		t.Fatalf("%+v, %v", changed, err)
	}
	byName, _, err := root.ACLRoles().GetByName("crew", nil)
	byID, _, errID := root.ACLRoles().Get(made.ID, nil)
	if err != nil || errID != nil || byName.ID != byID.ID || byID.ModifyIndex != changed.ModifyIndex {
		t.Fatalf("%+v, %v, %+v, %v", byName, err, byID, errID)
	}
	list, _, err := root.ACLRoles().List(&api.QueryOptions{Prefix: made.ID[:4]})
	if err != nil || len(list) != 1 || list[0].Policies[0].Name != "one" {
		t.Fatalf("%+v, %v", list, err)
	}
	_, _, err = root.ACLRoles().GetByName("ops", nil)
	refused(t, err, "404 (ACL role not found)")
}

func tokens(t *testing.T, root *api.Client) {
	made, _, err := root.ACLTokens().Create(&api.ACLToken{
		Name: "ci", Type: "client", Policies: []string{"one"}, ExpirationTTL: time.Hour,
		Roles: []*api.ACLTokenRoleLink{{Name: "crew"}, {Name: "crew"}},
	}, nil)
	if err != nil || len(made.Roles) != 1 || made.Roles[0].Name != "crew" || made.SecretID == "" {
		t.Fatalf("%+v, %v", made, err)
	}
	if made.ExpirationTTL != time.Hour || made.ExpirationTime.Sub(made.CreateTime) != time.Hour {
		t.Fatalf("%+v", made)
	}
	found, _, err := root.ACLTokens().Info(made.AccessorID, nil)
	if err != nil || found.SecretID != made.SecretID || found.Roles[0].ID == "" {
		t.Fatalf("%+v, %v", found, err)
	}
	found.Name, found.Policies = "cd", []string{"one", "web-vars"}
	changed, _, err := root.ACLTokens().Update(found, nil)
	if err != nil || changed.SecretID != made.SecretID || changed.Name != "cd" || len(changed.Policies) != 2 {
		t.Fatalf("%+v, %v", changed, err)
	}
	found.Global = true
	_, _, err = root.ACLTokens().Update(found, nil)
	refused(t, err, "cannot toggle global mode")
	_, _, err = root.ACLTokens().Create(&api.ACLToken{Type: "client", Roles: []*api.ACLTokenRoleLink{{Name: "none"}}}, nil)
	refused(t, err, "400 (cannot find role none)")
	_, _, err = root.ACLTokens().Create(&api.ACLToken{Type: "client"}, nil)
	refused(t, err, "client token missing policies or roles")

	list, _, err := root.ACLTokens().List(&api.QueryOptions{PerPage: 1})
	if err != nil || len(list) != 1 || list[0].Name != "Bootstrap Token" {
		t.Fatalf("%+v, %v", list, err)
	}
	list, meta, err := root.ACLTokens().List(&api.QueryOptions{Prefix: made.AccessorID[:8]})
	if err != nil || len(list) != 1 || list[0].ExpirationTime == nil || meta.LastIndex == 0 {
		t.Fatalf("%+v, %v", list, err)
	}
	list, _, err = root.ACLTokens().List(&api.QueryOptions{Params: map[string]string{"global": "true"}})
	if err != nil || len(list) != 1 || list[0].Name != "Bootstrap Token" {
		t.Fatalf("%+v, %v", list, err)
	}
	uploaded, _, err := root.ACLTokens().Upload(&api.ACLToken{
		AccessorID: "e4a1f0c2-0000-4000-8000-000000000001", Type: "client", Policies: []string{"one"},
		SecretID: "e4a1f0c2-0000-4000-8000-000000000002",
	}, nil)
	if err != nil || uploaded.SecretID != "e4a1f0c2-0000-4000-8000-000000000002" {
		t.Fatalf("%+v, %v", uploaded, err)
	}
	own, _, err := as(t, uploaded.SecretID).ACLTokens().Self(nil)
	if err != nil || own.AccessorID != uploaded.AccessorID {
		t.Fatalf("%+v, %v", own, err)
	}
	if _, err := root.ACLTokens().Delete(uploaded.AccessorID, nil); err != nil {
		t.Fatal(err)
	}
	_, err = root.ACLTokens().Delete(uploaded.AccessorID, nil)
	refused(t, err, "400 (Cannot delete nonexistent tokens: ")
	_, _, err = root.ACLTokens().Info(uploaded.AccessorID, nil)
	refused(t, err, "404 (ACL token not found)")
	_, _, err = as(t, uploaded.SecretID).ACLTokens().Self(nil)
	refused(t, err, "403")
}

// What who has a role alone may see, and may not.
func rights(t *testing.T, root *api.Client) {
	made, _, err := root.ACLTokens().Create(&api.ACLToken{
		Type: "client", Roles: []*api.ACLTokenRoleLink{{Name: "crew"}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	c := as(t, made.SecretID)
	list, _, err := c.ACLPolicies().List(nil)
	names := func(list []*api.ACLPolicyListStub) []string {
		var names []string
		for _, policy := range list {
			names = append(names, policy.Name)
		}
		return names
	}
	if err != nil || !slices.Equal(names(list), []string{"one"}) {
		t.Fatalf("%v, %v", names(list), err)
	}
	list, _, err = c.ACLPolicies().Self(nil)
	if err != nil || !slices.Equal(names(list), []string{"one"}) {
		t.Fatalf("%v, %v", names(list), err)
	}
	if _, _, err := c.ACLPolicies().Info("one", nil); err != nil {
		t.Fatal(err)
	}
	for what, ask := range map[string]func() error{
		"another policy": func() error { _, _, err := c.ACLPolicies().Info("web-vars", nil); return err },
		"no policy":      func() error { _, _, err := c.ACLPolicies().Info("nothing", nil); return err },
		"tokens":         func() error { _, _, err := c.ACLTokens().List(nil); return err },
		"another token": func() error {
			own, _, err := root.ACLTokens().Self(nil)
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = c.ACLTokens().Info(own.AccessorID, nil)
			return err
		},
		"a policy": func() error {
			_, err := c.ACLPolicies().Upsert(&api.ACLPolicy{Name: "one", Rules: "node { policy = \"write\" }"}, nil)
			return err
		},
		"a token": func() error {
			_, _, err := c.ACLTokens().Create(&api.ACLToken{Type: "management"}, nil)
			return err
		},
		"itself": func() error {
			token := *made
			token.Policies = []string{"web-vars"}
			_, _, err := c.ACLTokens().Update(&token, nil)
			return err
		},
	} {
		if err := ask(); err == nil || !strings.Contains(err.Error(), "403") {
			t.Errorf("%s: %v", what, err)
		}
	}
	held, _, err := c.ACLRoles().List(nil)
	if err != nil || len(held) != 1 || held[0].Name != "crew" {
		t.Fatalf("%+v, %v", held, err)
	}
	if _, _, err := c.ACLRoles().GetByName("crew", nil); err != nil {
		t.Fatal(err)
	}
	own, _, err := c.ACLTokens().Info(made.AccessorID, nil)
	if err != nil || own.SecretID != made.SecretID {
		t.Fatalf("%+v, %v", own, err)
	}
	nobody := as(t, "")
	anonymous, _, err := nobody.ACLTokens().Self(nil)
	if err != nil || anonymous.AccessorID != "anonymous" || anonymous.SecretID != "" {
		t.Fatalf("%+v, %v", anonymous, err)
	}
	list, _, err = nobody.ACLPolicies().List(nil)
	if err != nil || len(list) != 0 {
		t.Fatalf("%+v, %v", list, err)
	}
}

func oneTime(t *testing.T, root *api.Client, of *api.ACLToken) {
	once, meta, err := root.ACLTokens().UpsertOneTimeToken(nil)
	if err != nil || once.AccessorID != of.AccessorID || once.OneTimeSecretID == "" || meta.LastIndex == 0 {
		t.Fatalf("%+v, %v", once, err)
	}
	nobody := as(t, "")
	found, _, err := nobody.ACLTokens().ExchangeOneTimeToken(once.OneTimeSecretID, nil)
	if err != nil || found.SecretID != of.SecretID {
		t.Fatalf("%+v, %v", found, err)
	}
	_, _, err = nobody.ACLTokens().ExchangeOneTimeToken(once.OneTimeSecretID, nil)
	refused(t, err, "403 (Permission denied)")
	_, _, err = nobody.ACLTokens().UpsertOneTimeToken(nil)
	refused(t, err, "403 (Permission denied)")
}
