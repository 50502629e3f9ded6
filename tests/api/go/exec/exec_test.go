// Package exec runs commands beside a task through the official Nomad API client. The agent's
// address comes in NOMAD_ADDR.
package exec

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

const limit = 60 * time.Second

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

func start(t *testing.T, c *api.Client, id string) *api.Allocation {
	t.Helper()
	task := api.NewTask("main", "raw_exec").
		SetConfig("command", "/bin/sh").
		SetConfig("args", []string{"-c", "exec sleep 600"})
	cpu, memory := 20, 20
	task.Resources = &api.Resources{CPU: &cpu, MemoryMB: &memory}
	task.Env = map[string]string{"GREETING": "hi"}
	job := api.NewServiceJob(id, id, "global", 50).AddDatacenter("*").
		AddTaskGroup(api.NewTaskGroup("group", 1).AddTask(task))
	if _, _, err := c.Jobs().Register(job, nil); err != nil {
		t.Fatal(err)
	}
	var alloc *api.Allocation
	wait(t, "the allocation", func() error {
		allocs, _, err := c.Jobs().Allocations(id, true, nil)
		if err != nil {
			return err
		}
		if len(allocs) != 1 || allocs[0].ClientStatus != "running" {
			return fmt.Errorf("%v", allocs)
		}
		alloc, _, err = c.Allocations().Info(allocs[0].ID, nil)
		return err
	})
	return alloc
}

type session struct {
	tty     bool
	stdin   io.Reader
	sizes   chan api.TerminalSize
	command []string
	task    string
}

func (s session) run(c *api.Client, alloc *api.Allocation) (string, string, int, error) {
	var stdout, stderr bytes.Buffer
	if s.stdin == nil {
		s.stdin = strings.NewReader("")
	}
	if s.task == "" {
		s.task = "main"
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	code, err := c.Allocations().Exec(ctx, alloc, s.task, s.tty, s.command, s.stdin, &stdout,
		&stderr, s.sizes, nil)
	return stdout.String(), stderr.String(), code, err
}

func sh(script string) []string { return []string{"/bin/sh", "-c", script} }

func TestExec(t *testing.T) {
	if os.Getenv("NOMAD_ADDR") == "" {
		t.Skip("NOMAD_ADDR names no agent")
	}
	c, err := api.NewClient(api.DefaultConfig())
	if err != nil {
		t.Fatal(err)
	}
	alloc := start(t, c, "go-exec")

	t.Run("pipes", func(t *testing.T) {
		in := strings.Repeat("line\n", 10_000)
		out, errs, code, err := session{
			stdin:   strings.NewReader(in),
			command: sh("echo $GREETING; wc -l; echo oops >&2; exit 7"),
		}.run(c, alloc)
		if err != nil || code != 7 || out != "hi\n10000\n" || errs != "oops\n" {
			t.Fatalf("%q %q %d %v", out, errs, code, err)
		}
	})
	t.Run("exit codes", func(t *testing.T) {
		for script, want := range map[string]int{"exit 0": 0, "exit 255": 255, "kill -9 $$": 137} {
			_, _, code, err := session{command: sh(script)}.run(c, alloc)
			if err != nil || code != want {
				t.Fatalf("%s: %d %v", script, code, err)
			}
		}
	})
	t.Run("terminal", func(t *testing.T) {
		sizes := make(chan api.TerminalSize, 2)
		sizes <- api.TerminalSize{Height: 20, Width: 40}
		sizes <- api.TerminalSize{Height: 33, Width: 77}
		reader, writer := io.Pipe()
		defer writer.Close()
		out, _, code, err := session{
			tty:   true,
			stdin: reader,
			sizes: sizes,
			command: sh("test -t 1 || exit 1; while test \"$(stty size)\" != '33 77'; " +
				"do sleep 0.05; done; echo size $(stty size); exit 5"),
		}.run(c, alloc)
		if err != nil || code != 5 || !strings.Contains(out, "size 33 77\r\n") {
			t.Fatalf("%q %d %v", out, code, err)
		}
	})
	t.Run("refusals", func(t *testing.T) {
		for want, s := range map[string]session{
			"400 (unknown task name \"nope\")": {task: "nope", command: sh("exit 0")},
			"400 (command is not present)":     {},
			"No such file or directory":        {command: []string{"/nowhere/at/all"}},
		} {
			_, _, code, err := s.run(c, alloc)
			if err == nil || !strings.Contains(err.Error(), want) || code != -2 {
				t.Fatalf("%d %v instead of %q", code, err, want)
			}
		}
	})
	t.Run("the end of the task", func(t *testing.T) {
		reader, writer := io.Pipe()
		defer writer.Close()
		stopped := make(chan error, 1)
		seen := &notice{text: "ready", found: make(chan struct{})}
		go func() {
			<-seen.found
			_, _, err := c.Jobs().Deregister("go-exec", false, nil)
			stopped <- err
		}()
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		defer cancel()
		code, err := c.Allocations().Exec(ctx, alloc, "main", false,
			sh("echo ready; exec sleep 600"), reader, seen, io.Discard, nil, nil)
		if err != nil || code != 137 {
			t.Fatalf("%d %v", code, err)
		}
		if err := <-stopped; err != nil {
			t.Fatal(err)
		}
		wait(t, "the refusal", func() error {
			_, _, _, err := session{command: sh("exit 0")}.run(c, alloc)
			if err == nil || !strings.Contains(err.Error(), "404 (task \"main\" is not running.)") {
				return fmt.Errorf("it says %v", err)
			}
			return nil
		})
	})
}

// notice tells when a text was written to it.
type notice struct {
	text  string
	all   bytes.Buffer
	found chan struct{}
	told  bool
}

func (n *notice) Write(p []byte) (int, error) {
	n.all.Write(p)
	if !n.told && strings.Contains(n.all.String(), n.text) {
		n.told = true
		close(n.found)
	}
	return len(p), nil
}
