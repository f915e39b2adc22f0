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
	Again    bool   `json:"again"`
	Check    string `json:"check"`
	Request  uint64 `json:"request"`
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

func refused(request Request, err error) Answer {
	for _, why := range []error{errTaken, errNoQuorum, errLost} {
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
		lease, err := lock.Acquire(ctx, request.Resource, request.TTL)
		grant(request, start, held, lease, err, lock)
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
	case request.Op != "extend" && request.Op != "release" && request.Op != "step":
		reply(Answer{ID: request.ID, Why: "unsupported"})
	case lease == nil:
		reply(refused(request, errLost))
	case request.Op == "extend":
		err := lock.Extend(ctx, lease, request.TTL)
		grant(request, start, held, lease, err, lock)
	case request.Op == "release":
		mutex.Lock()
		delete(leases, held)
		mutex.Unlock()
		if err := lock.Release(ctx, lease); err != nil {
			reply(refused(request, err))
			return
		}
		reply(Answer{ID: request.ID, OK: true, From: start, At: nowNs()})
	case nowNs() >= lease.Deadline:
		reply(refused(request, errLost))
	default:
		reply(Answer{ID: request.ID, OK: true, At: nowNs()})
	}
}

// grant answers with a lease, or with the reason why there is none.
func grant(request Request, start int64, held key, lease *Lease, err error, lock *Lock) {
	if err != nil {
		reply(refused(request, err))
		return
	}
	at := nowNs()
	mutex.Lock()
	leases[held] = lease
	mutex.Unlock()
	if !reply(Answer{ID: request.ID, OK: true, Token: lease.Token, From: start, At: at,
		Deadline: lease.Deadline}) {
		// The request was cancelled meanwhile.
		mutex.Lock()
		delete(leases, held)
		mutex.Unlock()
		lock.Release(context.Background(), lease)
	}
}

func main() {
	lock := &Lock{address: address()}
	ready, _ := json.Marshal(map[string]any{
		"event": "ready", "protocol": 1, "name": "the template in Go", "version": "1",
		"can": []string{"deadline", "extend", "cancel"},
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

// Lease is a granted lock.
type Lease struct {
	Resource, Token string
	Deadline        int64
}

const (
	release = `if redis.call('get',KEYS[1])==ARGV[1] then return redis.call('del',KEYS[1]) end
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

// Acquire tries once. The key of an attempt that failed is deleted.
func (lock *Lock) Acquire(ctx context.Context, resource string, ttl int64) (*Lease, error) {
	var random [16]byte
	rand.Read(random[:])
	start := nowNs()
	lease := &Lease{resource, hex.EncodeToString(random[:]), end(start, ttl)}
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
	lease.Deadline = end(start, ttl)
	return nil
}

// Release deletes the key, if it is still that of the lease.
func (lock *Lock) Release(ctx context.Context, lease *Lease) error {
	_, err := lock.call(ctx, "EVAL", release, "1", lease.Resource, lease.Token)
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
