package api

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/nomad/api/contexts"
)

// register puts a job in without waiting for it.
func register(t *testing.T, c *api.Client, job *api.Job) {
	t.Helper()
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, _, err := c.Jobs().Deregister(*job.ID, true, nil); err != nil {
			t.Errorf("deregister: %v", err)
		}
	})
}

func TestTemplatesAreDispatchedAndLaunched(t *testing.T) {
	c := client(t)
	mill := job(t, "mill", "batch", "true")
	mill.ParameterizedJob = &api.ParameterizedJobConfig{MetaOptional: []string{"colour"}}
	register(t, c, mill)
	meta := map[string]string{"colour": "red"}
	made, _, err := c.Jobs().Dispatch("mill", meta, []byte("grain"), "pre", nil)
	if err != nil || !strings.HasPrefix(made.DispatchedJobID, "mill/dispatch-pre-") {
		t.Fatalf("%+v, %v", made, err)
	}
	child, _, err := c.Jobs().Info(made.DispatchedJobID, nil)
	if err != nil || string(child.Payload) != "grain" || child.Meta["colour"] != "red" {
		t.Fatalf("%+v, %v", child, err)
	}
	wait(t, "the child to end", func() error {
		allocs, _, err := c.Jobs().Allocations(made.DispatchedJobID, false, nil)
		if err != nil {
			return err
		}
		if len(allocs) != 1 || allocs[0].ClientStatus != api.AllocClientStatusComplete {
			return errors.New("not yet")
		}
		return nil
	})

	clock := job(t, "clock", "batch", "true")
	clock.AddPeriodicConfig(&api.PeriodicConfig{Spec: ptr("0 0 1 1 *"), SpecType: ptr("cron"), Enabled: ptr(true)})
	register(t, c, clock)
	planned, _, err := c.Jobs().Plan(clock, true, nil)
	if err != nil || planned.Annotations.DesiredTGUpdates["group"].Place != 1 {
		t.Fatalf("%+v, %v", planned, err)
	}
	eval, _, err := c.Jobs().PeriodicForce("clock", nil)
	if err != nil || eval == "" {
		t.Fatalf("%q, %v", eval, err)
	}
}

func TestVersionsAreNamed(t *testing.T) {
	c := client(t)
	register(t, c, job(t, "named", "batch", "true"))
	if _, err := c.Jobs().TagVersion("named", 0, "golden", "good", nil); err != nil {
		t.Fatal(err)
	}
	versions, _, _, err := c.Jobs().Versions("named", false, nil)
	if err != nil || versions[0].VersionTag == nil || versions[0].VersionTag.Name != "golden" {
		t.Fatalf("%+v, %v", versions, err)
	}
	if _, err := c.Jobs().UntagVersion("named", "golden", nil); err != nil {
		t.Fatal(err)
	}
}

func TestAMissingJobIsWaitedFor(t *testing.T) {
	c := client(t)
	services, meta, err := c.Services().List(nil)
	if err != nil || len(services) != 0 || meta.LastIndex != 0 || !meta.KnownLeader {
		t.Fatalf("%+v, %+v, %v", services, meta, err)
	}
	_, _, err = c.Jobs().Info("late", nil)
	if err == nil {
		t.Fatal("the job is there already")
	}
	if _, meta, err = c.Jobs().List(nil); err != nil {
		t.Fatal(err)
	}
	found := make(chan error, 1)
	go func() {
		_, _, err := c.Jobs().Info("late", &api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: limit})
		found <- err
	}()
	register(t, c, job(t, "late", "batch", "true"))
	select {
	case err := <-found:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(limit):
		t.Fatal("nobody woke the reader")
	}
}

func TestTheClusterIsLookedAt(t *testing.T) {
	c := client(t)
	health, _, err := c.Operator().AutopilotServerHealth(nil)
	if err != nil || !health.Healthy || len(health.Servers) != 1 {
		t.Fatalf("%+v, %v", health, err)
	}
	config, _, err := c.Operator().AutopilotGetConfiguration(nil)
	if err != nil || config.LastContactThreshold != 200*time.Millisecond {
		t.Fatalf("%+v, %v", config, err)
	}
	self, err := c.Agent().Self()
	if err != nil {
		t.Fatal(err)
	}
	id := self.Stats["client"]["node_id"]
	if node, _, err := c.Nodes().Info(id, nil); err != nil || node.ID != id {
		t.Fatalf("%q: %+v, %v", id, node, err)
	}
	if meta, err := c.Nodes().Meta().Read(id, nil); err != nil || meta.Meta == nil {
		t.Fatalf("%+v, %v", meta, err)
	}
	found, _, err := c.Search().FuzzySearch("defau", contexts.Namespaces, nil)
	if err != nil || len(found.Matches[contexts.Namespaces]) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	if volumes, _, err := c.CSIVolumes().List(nil); err != nil || len(volumes) != 0 {
		t.Fatalf("%+v, %v", volumes, err)
	}
	if plugins, _, err := c.CSIPlugins().List(nil); err != nil || len(plugins) != 0 {
		t.Fatalf("%+v, %v", plugins, err)
	}
	if policies, _, err := c.Scaling().ListPolicies(nil); err != nil || len(policies) != 0 {
		t.Fatalf("%+v, %v", policies, err)
	}
	if _, _, err := c.ACLTokens().Self(nil); err == nil || !strings.Contains(err.Error(), "ACL support disabled") {
		t.Fatal(err)
	}
	if _, _, err := c.Jobs().List(&api.QueryOptions{Region: "mars"}); err == nil || !strings.Contains(err.Error(), "No path to region") {
		t.Fatal(err)
	}
}

func ptr[T any](value T) *T { return &value }
