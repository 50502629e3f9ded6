// Package api drives a running drover agent with the official Nomad API client. The agent's address
// comes in NOMAD_ADDR; tests/api/main.rs starts the agent and runs this module.
package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

const limit = 60 * time.Second

func client(t *testing.T) *api.Client {
	t.Helper()
	if os.Getenv("NOMAD_ADDR") == "" {
		t.Skip("NOMAD_ADDR names no agent")
	}
	c, err := api.NewClient(api.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// wait asks until there is no refusal left.
func wait(t *testing.T, what string, ask func() error) {
	t.Helper()
	end := time.Now().Add(limit)
	for {
		err := ask()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("waited for %s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func job(t *testing.T, id, kind, script string) *api.Job {
	t.Helper()
	job := api.NewServiceJob(id, id, "global", 50)
	if kind == "batch" {
		job = api.NewBatchJob(id, id, "global", 50)
	}
	task := api.NewTask("main", "raw_exec").
		SetConfig("command", "/bin/sh").
		SetConfig("args", []string{"-c", script})
	cpu, memory := 20, 20
	task.Resources = &api.Resources{CPU: &cpu, MemoryMB: &memory}
	group := api.NewTaskGroup("group", 1).AddTask(task)
	attempts, mode := 0, "fail"
	group.RestartPolicy = &api.RestartPolicy{Attempts: &attempts, Mode: &mode}
	return job.AddDatacenter("*").AddTaskGroup(group)
}

// run registers the job and waits for its one allocation to reach the status.
func run(t *testing.T, c *api.Client, job *api.Job, status string) *api.Allocation {
	t.Helper()
	answer, _, err := c.Jobs().Register(job, nil)
	if err != nil {
		t.Fatal(err)
	}
	if answer.EvalID == "" || answer.JobModifyIndex == 0 {
		t.Fatalf("register answered %+v", answer)
	}
	t.Cleanup(func() {
		if _, _, err := c.Jobs().Deregister(*job.ID, true, nil); err != nil {
			t.Errorf("deregister: %v", err)
		}
	})
	var id string
	wait(t, "the allocation to be "+status, func() error {
		allocs, _, err := c.Jobs().Allocations(*job.ID, true, nil)
		if err != nil {
			return err
		}
		if len(allocs) != 1 {
			return fmt.Errorf("%d allocations", len(allocs))
		}
		id = allocs[0].ID
		if allocs[0].ClientStatus != status {
			return fmt.Errorf("it is %s (%v)", allocs[0].ClientStatus, allocs[0].TaskStates)
		}
		return nil
	})
	alloc, _, err := c.Allocations().Info(id, nil)
	if err != nil {
		t.Fatal(err)
	}
	return alloc
}

func TestServiceJob(t *testing.T) {
	c := client(t)
	alloc := run(t, c, job(t, "go-service", "service", "echo hello; exec sleep 600"), "running")
	if alloc.Job == nil || *alloc.Job.ID != "go-service" || alloc.TaskStates["main"].State != "running" {
		t.Fatalf("allocation %+v", alloc)
	}
	wait(t, "the log", func() error {
		text, err := log(c, alloc)
		if err == nil && !strings.Contains(text, "hello") {
			err = fmt.Errorf("log is %q", text)
		}
		return err
	})
	info, _, err := c.Jobs().Info("go-service", nil)
	if err != nil || *info.Status != "running" || *info.TaskGroups[0].Count != 1 {
		t.Fatalf("info %+v, %v", info, err)
	}
	summary, _, err := c.Jobs().Summary("go-service", nil)
	if err != nil || summary.Summary["group"].Running != 1 {
		t.Fatalf("summary %+v, %v", summary, err)
	}
	evals, _, err := c.Jobs().Evaluations("go-service", nil)
	if err != nil || len(evals) == 0 || evals[0].TriggeredBy != "job-register" {
		t.Fatalf("evaluations %+v, %v", evals, err)
	}
	versions, _, _, err := c.Jobs().Versions("go-service", false, nil)
	if err != nil || len(versions) != 1 {
		t.Fatalf("versions %d, %v", len(versions), err)
	}
	list, meta, err := c.Jobs().List(&api.QueryOptions{Prefix: "go-serv", Filter: `Status == "running"`})
	if err != nil || len(list) != 1 || meta.LastIndex == 0 {
		t.Fatalf("list %d, %+v, %v", len(list), meta, err)
	}
}

func log(c *api.Client, alloc *api.Allocation) (string, error) {
	cancel := make(chan struct{})
	defer close(cancel)
	frames, errs := c.AllocFS().Logs(alloc, false, "main", "stdout", "start", 0, cancel, nil)
	var text strings.Builder
	for {
		select {
		case frame, open := <-frames:
			if !open {
				return text.String(), nil
			}
			text.Write(frame.Data)
		case err := <-errs:
			if err == nil || errors.Is(err, io.EOF) {
				return text.String(), nil
			}
			return "", err
		}
	}
}

func TestBatchJob(t *testing.T) {
	c := client(t)
	alloc := run(t, c, job(t, "go-batch", "batch", "exit 0"), "complete")
	state := alloc.TaskStates["main"]
	if state.Failed || state.State != "dead" || len(state.Events) < 3 {
		t.Fatalf("task state %+v", state)
	}
	wait(t, "the job to be dead", func() error {
		info, _, err := c.Jobs().Info("go-batch", nil)
		if err == nil && *info.Status != "dead" {
			err = fmt.Errorf("status %s", *info.Status)
		}
		return err
	})
}

func TestFailingTask(t *testing.T) {
	c := client(t)
	failing := job(t, "go-failing", "batch", "exit 3")
	none := 0
	unlimited := false
	failing.TaskGroups[0].ReschedulePolicy = &api.ReschedulePolicy{Attempts: &none, Unlimited: &unlimited}
	alloc := run(t, c, failing, "failed")
	if !alloc.TaskStates["main"].Failed {
		t.Fatalf("task state %+v", alloc.TaskStates["main"])
	}
}

func TestPlanChangesNothing(t *testing.T) {
	c := client(t)
	plan, _, err := c.Jobs().Plan(job(t, "go-plan", "service", "sleep 1"), true, nil)
	if err != nil {
		t.Fatal(err)
	}
	if plan.Annotations == nil || plan.Annotations.DesiredTGUpdates["group"].Place != 1 {
		t.Fatalf("plan %+v", plan)
	}
	if _, _, err := c.Jobs().Info("go-plan", nil); err == nil {
		t.Fatal("a planned job exists")
	}
}

func TestParse(t *testing.T) {
	c := client(t)
	job, err := c.Jobs().ParseHCL(`job "parsed" {
  group "g" {
    task "t" {
      driver = "raw_exec"
      config { command = "/bin/true" }
    }
  }
}`, true)
	if err != nil || *job.ID != "parsed" || *job.Type != "service" {
		t.Fatalf("%+v, %v", job, err)
	}
	if _, err := c.Jobs().ParseHCL("job {", true); err == nil {
		t.Fatal("a broken file was parsed")
	}
}

func TestNodes(t *testing.T) {
	c := client(t)
	nodes, _, err := c.Nodes().List(nil)
	if err != nil || len(nodes) != 1 || nodes[0].Status != "ready" {
		t.Fatalf("%+v, %v", nodes, err)
	}
	node, _, err := c.Nodes().Info(nodes[0].ID, nil)
	if err != nil || node.Attributes["kernel.name"] != "linux" || !node.Drivers["raw_exec"].Healthy {
		t.Fatalf("%+v, %v", node, err)
	}
}

func TestVariables(t *testing.T) {
	c := client(t)
	v := api.NewVariable("go/db")
	v.Items = api.VariableItems{"user": "u", "pass": "p"}
	first, _, err := c.Variables().CheckedCreate(v, nil)
	if err != nil || first.ModifyIndex == 0 {
		t.Fatalf("%+v, %v", first, err)
	}
	_, _, err = c.Variables().CheckedCreate(v, nil)
	var conflict api.ErrCASConflict
	if !errors.As(err, &conflict) || conflict.Conflict.Items["user"] != "u" {
		t.Fatalf("second create: %v", err)
	}
	first.Items["user"] = "w"
	second, _, err := c.Variables().CheckedUpdate(first, nil)
	if err != nil || second.ModifyIndex <= first.ModifyIndex {
		t.Fatalf("%+v, %v", second, err)
	}
	read, _, err := c.Variables().Read("go/db", nil)
	if err != nil || read.Items["user"] != "w" || read.CreateIndex != first.CreateIndex {
		t.Fatalf("%+v, %v", read, err)
	}
	list, _, err := c.Variables().PrefixList("go/", nil)
	if err != nil || len(list) != 1 || list[0].Path != "go/db" {
		t.Fatalf("%+v, %v", list, err)
	}
	if _, err := c.Variables().Delete("go/db", nil); err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.Variables().Read("go/db", nil); !errors.Is(err, api.ErrVariablePathNotFound) {
		t.Fatalf("after delete: %v", err)
	}
}

func TestEvaluations(t *testing.T) {
	c := client(t)
	run(t, c, job(t, "go-evals", "batch", "exit 0"), "complete")
	filter := &api.QueryOptions{Filter: `JobID == "go-evals"`}
	list, _, err := c.Evaluations().List(filter)
	if err != nil || len(list) == 0 {
		t.Fatalf("%d, %v", len(list), err)
	}
	count, _, err := c.Evaluations().Count(filter)
	if err != nil || count.Count != len(list) {
		t.Fatalf("count %+v, %d in the list, %v", count, len(list), err)
	}
	if _, _, err := c.Evaluations().List(&api.QueryOptions{Filter: "Nope == 1"}); err == nil {
		t.Fatal("an unknown selector was accepted")
	}
	first, _, err := c.Evaluations().Info(list[0].ID, nil)
	if err != nil || first.ID != list[0].ID {
		t.Fatalf("%+v, %v", first, err)
	}
}

func TestPages(t *testing.T) {
	c := client(t)
	for i := range 3 {
		v := api.NewVariable(fmt.Sprintf("go-page/%d", i))
		v.Items = api.VariableItems{"n": fmt.Sprint(i)}
		if _, _, err := c.Variables().Create(v, nil); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = c.Variables().Delete(v.Path, nil) })
	}
	q := &api.QueryOptions{Prefix: "go-page/", PerPage: 2}
	list, meta, err := c.Variables().List(q)
	if err != nil || len(list) != 2 || meta.NextToken == "" {
		t.Fatalf("%d, %+v, %v", len(list), meta, err)
	}
	q.NextToken = meta.NextToken
	list, meta, err = c.Variables().List(q)
	if err != nil || len(list) != 1 || meta.NextToken != "" || list[0].Path != "go-page/2" {
		t.Fatalf("%+v, %+v, %v", list, meta, err)
	}
}

func TestBlockingQuery(t *testing.T) {
	c := client(t)
	_, meta, err := c.Variables().List(nil)
	if err != nil {
		t.Fatal(err)
	}
	woken := make(chan error, 1)
	go func() {
		_, after, err := c.Variables().List(&api.QueryOptions{WaitIndex: meta.LastIndex, WaitTime: limit})
		if err == nil && after.LastIndex <= meta.LastIndex {
			err = fmt.Errorf("index went from %d to %d", meta.LastIndex, after.LastIndex)
		}
		woken <- err
	}()
	v := api.NewVariable("go-blocking")
	v.Items = api.VariableItems{"a": "b"}
	if _, _, err := c.Variables().Create(v, nil); err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = c.Variables().Delete(v.Path, nil) }()
	select {
	case err := <-woken:
		if err != nil {
			t.Fatal(err)
		}
	case <-time.After(limit):
		t.Fatal("the query did not wake")
	}
}

func TestEventStream(t *testing.T) {
	c := client(t)
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	topics := map[api.Topic][]string{api.TopicJob: {"go-stream"}}
	events, err := c.EventStream().Stream(ctx, topics, 0, nil)
	if err != nil {
		t.Fatal(err)
	}
	run(t, c, job(t, "go-stream", "batch", "exit 0"), "complete")
	for batch := range events {
		if batch.Err != nil {
			t.Fatal(batch.Err)
		}
		for _, event := range batch.Events {
			if event.Type == "JobRegistered" && event.Key == "go-stream" {
				if job, err := event.Job(); err != nil || *job.ID != "go-stream" {
					t.Fatalf("payload %+v, %v", job, err)
				}
				return
			}
		}
	}
	t.Fatal("the stream ended without the event")
}

func TestOperator(t *testing.T) {
	c := client(t)
	leader, err := c.Status().Leader()
	if err != nil || leader == "" {
		t.Fatalf("leader %q, %v", leader, err)
	}
	answer, _, err := c.Operator().SchedulerGetConfiguration(nil)
	if err != nil || answer.SchedulerConfig.SchedulerAlgorithm != api.SchedulerAlgorithmBinpack {
		t.Fatalf("%+v, %v", answer, err)
	}
	raft, err := c.Operator().RaftGetConfiguration(nil)
	if err != nil || len(raft.Servers) != 1 || !raft.Servers[0].Leader {
		t.Fatalf("%+v, %v", raft, err)
	}
	self, err := c.Agent().Self()
	if err != nil || self.Member.Name == "" {
		t.Fatalf("%+v, %v", self, err)
	}
	namespaces, _, err := c.Namespaces().List(nil)
	if err != nil || len(namespaces) != 1 || namespaces[0].Name != "default" {
		t.Fatalf("%+v, %v", namespaces, err)
	}
	if err := c.System().GarbageCollect(); err != nil {
		t.Fatal(err)
	}
}

func TestRefusals(t *testing.T) {
	c := client(t)
	if _, _, err := c.Jobs().Info("nobody", nil); err == nil || !strings.Contains(err.Error(), "404") {
		t.Fatalf("unknown job: %v", err)
	}
	empty := api.NewServiceJob("go-empty", "go-empty", "global", 50)
	if _, _, err := c.Jobs().Register(empty, nil); err == nil {
		t.Fatal("a job without groups was registered")
	}
}

func TestAgentLogMachineAndProfiles(t *testing.T) {
	c := client(t)
	stop := make(chan struct{})
	defer close(stop)
	query := &api.QueryOptions{Params: map[string]string{"log_level": "debug"}}
	frames, errs := c.Agent().Monitor(stop, query)
	told := make(chan struct{})
	go func() {
		for frame := range frames {
			if strings.Contains(string(frame.Data), "Reloading configuration") {
				close(told)
				return
			}
		}
	}()
	request, _ := http.NewRequest("PUT", os.Getenv("NOMAD_ADDR")+"/v1/agent/reload", nil)
	answer, err := http.DefaultClient.Do(request)
	if err != nil || answer.StatusCode != 200 {
		t.Fatalf("reload %+v, %v", answer, err)
	}
	select {
	case <-told:
	case err := <-errs:
		t.Fatalf("monitor: %v", err)
	case <-time.After(limit):
		t.Fatal("the log says nothing of it")
	}
	query.Params["log_level"] = "loud"
	_, errs = c.Agent().Monitor(stop, query)
	if err := <-errs; err == nil || !strings.Contains(err.Error(), "Unknown log level: loud") {
		t.Fatalf("monitor: %v", err)
	}
	host, err := c.Agent().Host("", "", nil)
	if err != nil || host.AgentID == "" || host.HostData.Environment["PATH"] == "" {
		t.Fatalf("host %+v, %v", host, err)
	}
	profile, err := c.Agent().CPUProfile(api.PprofOptions{}, nil)
	if err != nil || len(profile) < 2 || profile[0] != 0x1f || profile[1] != 0x8b {
		t.Fatalf("profile of %d bytes, %v", len(profile), err)
	}
	threads, err := c.Agent().Lookup("goroutine", api.PprofOptions{Debug: 1}, nil)
	if err != nil || !strings.HasPrefix(string(threads), "goroutine profile: total ") {
		t.Fatalf("threads %q, %v", threads, err)
	}
	if _, err := c.Agent().Lookup("nope", api.PprofOptions{}, nil); err == nil {
		t.Fatal("there is no such profile")
	}
}

func TestNodeMetadata(t *testing.T) {
	c := client(t)
	value := "r7"
	said, err := c.Nodes().Meta().Apply(&api.NodeMetaApplyRequest{
		Meta: map[string]*string{"go.rack": &value, "connect.log_level": nil},
	}, nil)
	if err != nil || said.Meta["go.rack"] != value || said.Static["connect.log_level"] != "info" {
		t.Fatalf("applied %+v, %v", said, err)
	}
	nodes, _, err := c.Nodes().List(nil)
	if err != nil || len(nodes) != 1 {
		t.Fatalf("nodes %v, %v", nodes, err)
	}
	read, err := c.Nodes().Meta().Read(nodes[0].ID, nil)
	if err != nil || *read.Dynamic["go.rack"] != value {
		t.Fatalf("read %+v, %v", read, err)
	}
	if hidden, there := read.Dynamic["connect.log_level"]; !there || hidden != nil {
		t.Fatalf("what is hidden is told: %+v", read.Dynamic)
	}
	wait(t, "the servers to know", func() error {
		node, _, err := c.Nodes().Info(nodes[0].ID, nil)
		if err == nil && node.Meta["go.rack"] != value {
			err = fmt.Errorf("metadata %v", node.Meta)
		}
		return err
	})
	job := job(t, "go-meta", "batch", "true")
	job.Constrain(api.NewConstraint("${meta.go.rack}", "=", value))
	run(t, c, job, "complete")
}
