package api

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// The client's own monitor, which `nomad node drain` shows, follows a drain to its end.
func TestADrainIsMonitored(t *testing.T) {
	c := client(t)
	alloc := run(t, c, job(t, "go-moved", "service", "exec sleep 600"), "running")
	id := alloc.NodeID
	t.Cleanup(func() {
		if _, err := c.Nodes().ToggleEligibility(id, true, nil); err != nil {
			t.Errorf("eligibility: %v", err)
		}
	})
	spec := &api.DrainSpec{Deadline: 2 * time.Second}
	meta := map[string]string{"message": "from Go"}
	answer, err := c.Nodes().UpdateDrainOpts(id, &api.DrainOptions{DrainSpec: spec, Meta: meta}, nil)
	if err != nil || answer.NodeModifyIndex == 0 || answer.EvalIDs != nil {
		t.Fatalf("%+v, %v", answer, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var told []string
	for message := range c.Nodes().MonitorDrain(ctx, id, answer.LastIndex, false) {
		told = append(told, message.Message)
		if message.Level == api.MonitorMsgLevelError {
			t.Errorf("an error: %s", message)
		}
	}
	all := strings.Join(told, "\n")
	for _, wanted := range []string{alloc.ID, "marked for migration", "rain complete", "have stopped"} {
		if !strings.Contains(all, wanted) {
			t.Errorf("%q is not among\n%s", wanted, all)
		}
	}
	node, _, err := c.Nodes().Info(id, nil)
	if err != nil || node.DrainStrategy != nil || node.SchedulingEligibility != "ineligible" {
		t.Fatalf("%+v, %v", node, err)
	}
	if node.LastDrain.Status != api.DrainStatusComplete || node.LastDrain.Meta["message"] != "from Go" {
		t.Fatalf("%+v", node.LastDrain)
	}
	eligible, err := c.Nodes().ToggleEligibility(id, false, nil)
	if err != nil || eligible.EvalIDs != nil {
		t.Fatalf("%+v, %v", eligible, err)
	}
}
