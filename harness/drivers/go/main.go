// The template of a driver in Go: the client protocol of docs/scenarios.md, and a small lock on the
// first master. Replace the lock at the end with the calls of your library, and check the result
// with `redquorum-chaos client-check --quorum 1 "go run ."`.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"
)

// Request is a line of standard input.
type Request struct {
	ID       uint64 `json:"id"`
	Client   string `json:"client"`
	Op       string `json:"op"`
	Resource string `json:"resource"`
	TTL      int64  `json:"ttl_ms"`
	Wait     int64  `json:"wait_ms"`
	Most     int64  `json:"max_ms"`
	Again    bool   `json:"again"`
	Check    string `json:"check"`
	Request  uint64 `json:"request"`

	Resources []string `json:"resources"`
}

// Answer is a line of standard output.
type Answer struct {
	ID       uint64 `json:"id"`
	OK       bool   `json:"ok"`
	Why      string `json:"why,omitempty"`
	Text     string `json:"text,omitempty"`
	Token    string `json:"token,omitempty"`
	From     int64  `json:"from_ns,omitempty"`
	At       int64  `json:"at_ns,omitempty"`
	Deadline int64  `json:"deadline_ns,omitempty"`
	Each     []Each `json:"each,omitempty"`
}

// Each is the grant of one of several resources.
type Each struct {
	Token    string `json:"token,omitempty"`
	Deadline int64  `json:"deadline_ns"`
}

// Event is a line that answers no request.
type Event struct {
	Event    string `json:"event"`
	Client   string `json:"client"`
	Resource string `json:"resource"`
	At       int64  `json:"at_ns"`
	Deadline int64  `json:"deadline_ns,omitempty"`
}

type key struct{ client, resource string }

var (
	mutex    sync.Mutex
	leases   = map[key]*Lease{}
	cancels  = map[uint64]context.CancelFunc{}
	answered = map[uint64]bool{} // also requests that were cancelled
)

// The reasons of the protocol.
var (
	errTaken    = errors.New("taken")
	errNoQuorum = errors.New("no-quorum")
	errLate     = errors.New("late")
	errLost     = errors.New("lost")
)

// nowNs reads CLOCK_MONOTONIC, the clock of all stamps.
func nowNs() int64 {
	var now syscall.Timespec
	syscall.Syscall(syscall.SYS_CLOCK_GETTIME, 1, uintptr(unsafe.Pointer(&now)), 0)
	return now.Nano()
}

// reply answers a request once, and returns whether this was the answer.
func reply(answer Answer) bool {
	mutex.Lock()
	defer mutex.Unlock()
	if answered[answer.ID] {
		return false
	}
	answered[answer.ID] = true
	line, _ := json.Marshal(answer)
	fmt.Println(string(line))
	return true
}

func isOver(lease *Lease) bool {
	mutex.Lock()
	defer mutex.Unlock()
	return nowNs() >= lease.Deadline
}

// extended reports that a lease was extended in the background.
func extended(held key, lease *Lease) {
	mutex.Lock()
	defer mutex.Unlock()
	if leases[held] == lease {
		event("extended", held, lease.Deadline)
	}
}

// watch reports the loss of a lease at its deadline, unless it is released before.
func watch(held key, lease *Lease) {
	mutex.Lock()
	defer mutex.Unlock()
	if leases[held] != lease {
		return
	}
	if left := lease.Deadline - nowNs(); left > 0 {
		time.AfterFunc(time.Duration(left), func() { watch(held, lease) })
		return
	}
	event("lost", held, 0)
}

// event writes an event, under the mutex.
func event(name string, held key, deadline int64) {
	line, _ := json.Marshal(Event{name, held.client, held.resource, nowNs(), deadline})
	fmt.Println(string(line))
}

func refused(request Request, err error) Answer {
	for _, why := range []error{errTaken, errNoQuorum, errLate, errLost} {
		if errors.Is(err, why) {
			return Answer{ID: request.ID, Why: why.Error(), Text: err.Error(), At: nowNs()}
		}
	}
	return Answer{ID: request.ID, Why: "error", Text: err.Error(), At: nowNs()}
}

func handle(ctx context.Context, lock *Lock, request Request) {
	held := key{request.Client, request.Resource}
	if request.Op == "step" {
		held.resource = request.Check
	}
	mutex.Lock()
	lease := leases[held]
	mutex.Unlock()
	start := nowNs()
	switch {
	case request.Op == "acquire" && !request.Again:
		all, err := lock.Acquire(ctx, []string{request.Resource}, request.TTL, request.Wait)
		grant(request, start, all, err, lock)
	case request.Op == "acquire_all":
		all, err := lock.Acquire(ctx, request.Resources, request.TTL, request.Wait)
		grant(request, start, all, err, lock)
	case request.Op == "release_all":
		release(request, start, request.Resources, lock)
	case request.Op == "cancel":
		reply(Answer{ID: request.Request, Why: "cancelled"})
		mutex.Lock()
		cancel := cancels[request.Request]
		mutex.Unlock()
		if cancel != nil {
			cancel()
		}
		reply(Answer{ID: request.ID, OK: true})
	case request.Op == "step" && request.Check == "":
		reply(Answer{ID: request.ID, OK: true, At: start})
	case request.Op == "release":
		release(request, start, []string{request.Resource}, lock)
	case request.Op != "extend" && request.Op != "keep_alive" && request.Op != "step":
		reply(Answer{ID: request.ID, Why: "unsupported"})
	case lease == nil:
		reply(refused(request, errLost))
	case request.Op == "extend":
		err := lock.Extend(ctx, lease, request.TTL)
		grant(request, start, []*Lease{lease}, err, lock)
	case request.Op == "keep_alive":
		until := start + request.Most*1_000_000
		go lock.KeepAlive(lease, until, func() { extended(held, lease) })
		reply(Answer{ID: request.ID, OK: true, At: nowNs()})
	case isOver(lease):
		reply(refused(request, errLost))
	default:
		reply(Answer{ID: request.ID, OK: true, At: nowNs()})
	}
}

// grant answers with leases, or with the reason why there are none.
func grant(request Request, start int64, all []*Lease, err error, lock *Lock) {
	if err != nil {
		reply(refused(request, err))
		return
	}
	answer := Answer{ID: request.ID, OK: true, From: start, At: nowNs()}
	mutex.Lock()
	for _, lease := range all {
		held := key{request.Client, lease.Resource}
		if leases[held] != lease {
			leases[held] = lease
			go watch(held, lease)
		}
		answer.Each = append(answer.Each, Each{lease.Token, lease.Deadline})
	}
	mutex.Unlock()
	if request.Op != "acquire_all" {
		answer.Token, answer.Deadline = answer.Each[0].Token, answer.Each[0].Deadline
		answer.Each = nil
	}
	if !reply(answer) {
		// The request was cancelled meanwhile.
		for _, lease := range all {
			release(request, start, []string{lease.Resource}, lock)
		}
	}
}

// release gives leases back. The first that is not held is the answer.
func release(request Request, start int64, resources []string, lock *Lock) {
	var failed error
	for _, resource := range resources {
		held := key{request.Client, resource}
		mutex.Lock()
		lease := leases[held]
		delete(leases, held)
		mutex.Unlock()
		err := errLost
		if lease != nil {
			err = lock.Release(context.Background(), lease)
		}
		if failed == nil {
			failed = err
		}
	}
	if failed != nil {
		reply(refused(request, failed))
		return
	}
	reply(Answer{ID: request.ID, OK: true, From: start, At: nowNs()})
}

func main() {
	lock := &Lock{address: address()}
	ready, _ := json.Marshal(map[string]any{
		"event": "ready", "protocol": 1, "name": "the template in Go", "version": "1",
		"can": []string{
			"deadline", "extend", "wait", "cancel", "keep_alive", "lost", "several",
		},
	})
	fmt.Println(string(ready))
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		var request Request
		if json.Unmarshal(lines.Bytes(), &request) != nil {
			continue
		}
		ctx, cancel := context.WithCancel(context.Background())
		mutex.Lock()
		cancels[request.ID] = cancel
		mutex.Unlock()
		go func() {
			handle(ctx, lock, request)
			cancel()
		}()
	}
	// The input has ended: the driver ends, whatever its requests are doing.
}

// What follows is the lock. Replace it with your library.

// Lock is a lock on one master, with a connection for each command.
type Lock struct{ address string }

// Lease is a granted lock. Its deadline changes under the mutex.
type Lease struct {
	Resource, Token string
	Deadline        int64
	TTL             int64
	released        chan struct{}
}

const (
	remove = `if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end
return 0`
	extend = `if redis.call('get',KEYS[1])==ARGV[1] then
return redis.call('pexpire',KEYS[1],ARGV[2]) end return 0`
)

func address() string {
	first, _, _ := strings.Cut(os.Getenv("REDQUORUM_NODES"), ",")
	return strings.TrimPrefix(first, "redis://")
}

// end is the deadline of the algorithm: the TTL from the start, less 1 % and 2 ms.
func end(start, ttl int64) int64 { return start + ttl*990_000 - 2_000_000 }

// Acquire acquires all resources or none. It tries again while one is taken, for at most wait ms.
func (lock *Lock) Acquire(
	ctx context.Context, resources []string, ttl, wait int64,
) ([]*Lease, error) {
	until := nowNs() + wait*1_000_000
	for {
		var all []*Lease
		var failed error
		for _, resource := range resources {
			lease, err := lock.try(ctx, resource, ttl)
			if failed = err; failed != nil {
				break
			}
			all = append(all, lease)
		}
		if failed == nil && isOver(all[0]) {
			failed = errLate
		}
		if failed == nil {
			return all, nil
		}
		for _, lease := range all {
			lock.Release(context.Background(), lease)
		}
		if nowNs() >= until || ctx.Err() != nil {
			return nil, failed
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// try makes one attempt. The key of an attempt that failed is deleted.
func (lock *Lock) try(ctx context.Context, resource string, ttl int64) (*Lease, error) {
	var random [16]byte
	rand.Read(random[:])
	start := nowNs()
	token := hex.EncodeToString(random[:])
	lease := &Lease{resource, token, end(start, ttl), ttl, make(chan struct{})}
	got, err := lock.call(ctx, "SET", resource, lease.Token, "NX", "PX", fmt.Sprint(ttl))
	if err != nil {
		go lock.Release(context.Background(), lease)
		return nil, fmt.Errorf("%w: %v", errNoQuorum, err)
	}
	if got != "+OK" {
		return nil, errTaken
	}
	return lease, nil
}

// Extend sets a new deadline, if the lease is still held.
func (lock *Lock) Extend(ctx context.Context, lease *Lease, ttl int64) error {
	start := nowNs()
	got, err := lock.call(ctx, "EVAL", extend, "1", lease.Resource, lease.Token, fmt.Sprint(ttl))
	if err != nil {
		return fmt.Errorf("%w: %v", errNoQuorum, err)
	}
	if got != ":1" {
		return errLost
	}
	mutex.Lock()
	lease.Deadline = end(start, ttl)
	mutex.Unlock()
	return nil
}

// KeepAlive extends the lease at each third of its TTL, until it is released or lost.
func (lock *Lock) KeepAlive(lease *Lease, until int64, extended func()) {
	for {
		select {
		case <-lease.released:
			return
		case <-time.After(time.Duration(lease.TTL) * time.Millisecond / 3):
		}
		ttl := min(lease.TTL, (until-nowNs())/1_000_000)
		mutex.Lock()
		isLonger := end(nowNs(), ttl) > lease.Deadline
		mutex.Unlock()
		if !isLonger {
			return
		}
		switch err := lock.Extend(context.Background(), lease, ttl); {
		case err == nil:
			extended()
		case errors.Is(err, errLost):
			return
		}
	}
}

// Release deletes the key, if it is still that of the lease.
func (lock *Lock) Release(ctx context.Context, lease *Lease) error {
	close(lease.released)
	_, err := lock.call(ctx, "EVAL", remove, "1", lease.Resource, lease.Token)
	if err != nil {
		return fmt.Errorf("%w: %v", errNoQuorum, err)
	}
	return nil
}

// call sends a command, and returns the first line of the reply.
func (lock *Lock) call(ctx context.Context, words ...string) (string, error) {
	dialer := net.Dialer{Timeout: time.Second}
	connection, err := dialer.DialContext(ctx, "tcp", lock.address)
	if err != nil {
		return "", err
	}
	defer connection.Close()
	stop := context.AfterFunc(ctx, func() { connection.Close() })
	defer stop()
	connection.SetDeadline(time.Now().Add(time.Second))
	fmt.Fprintf(connection, "*%d\r\n", len(words))
	for _, word := range words {
		fmt.Fprintf(connection, "$%d\r\n%s\r\n", len(word), word)
	}
	line, err := bufio.NewReader(connection).ReadString('\n')
	return strings.TrimSpace(line), err
}
