package soak

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"strconv"
	"time"
)

// list reads the objects of a list and their versions, page by page if the URL has a
// limit.
func (s *soak) list(ctx context.Context, client *http.Client, base, accept string) (map[string]uint64, uint64, error) {
	has := map[string]uint64{}
	page := base
	for {
		body, err := s.get(ctx, client, page, accept, "")
		if err != nil {
			return nil, 0, err
		}
		var l struct {
			Metadata struct {
				ResourceVersion uint64 `json:"resourceVersion,string"`
				Continue        string `json:"continue"`
			} `json:"metadata"`
			Items []thing `json:"items"`
		}
		if err := json.Unmarshal(body, &l); err != nil {
			return nil, 0, fmt.Errorf("a list that is no JSON: %w: %.200s", err, body)
		}
		for _, o := range l.Items {
			has[o.key()] = o.Metadata.ResourceVersion
		}
		if l.Metadata.Continue == "" {
			return has, l.Metadata.ResourceVersion, nil
		}
		u, err := url.Parse(base)
		if err != nil {
			return nil, 0, err
		}
		q := u.Query()
		q.Del("resourceVersion")
		q.Set("continue", l.Metadata.Continue)
		u.RawQuery = q.Encode()
		page = u.String()
	}
}

// state compares a reader's state at a version with the truth.
func (s *soak) state(ctx context.Context, kind, what string, at *cursor, has map[string]uint64, version uint64) {
	patience, cancel := context.WithTimeout(ctx, truthTimeout)
	defer cancel()
	if s.truth.wait(patience, version) != nil {
		if ctx.Err() == nil {
			s.report.mismatch(kind, fmt.Sprintf("%s is of version %d, which etcd does not have after %s", what, version, truthTimeout), nil)
		}
		return
	}
	differences, known := at.compare(has, version, true)
	if !known {
		return
	}
	s.report.count(kind+" = etcd", 1)
	if len(differences) > 0 {
		s.report.mismatch(kind, fmt.Sprintf("%s at version %d is not what there was then: %s", what, version, describe(differences)), nil)
	}
}

// lists requests all kinds of lists and compares each with the truth at its version.
// Lists that must be as fresh as the cluster are checked for that, too.
func (s *soak) lists(ctx context.Context, random *rand.Rand) error {
	client := s.client(false)
	defer client.CloseIdleConnections()
	at := map[string]*cursor{}
	for _, r := range resources {
		at[r.stored] = s.truth.cursor(r.stored)
	}
	const accept = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
	for Sleep(ctx, between(random, listEvery/2, listEvery)) {
		r := resources[random.IntN(len(resources))]
		query := url.Values{}
		if random.IntN(3) == 0 {
			query.Set("limit", strconv.Itoa(1+random.IntN(100)))
		}
		fresh := random.IntN(2) == 0
		if !fresh {
			query.Set("resourceVersion", "0")
		}
		least := s.truth.last(r.stored)
		has, version, err := s.list(ctx, client, s.url+r.path(query), accept)
		if err != nil {
			s.ended("list", err)
			continue
		}
		s.state(ctx, "list", fmt.Sprintf("%s?%s", r, query.Encode()), at[r.stored], has, version)
		if fresh {
			s.report.count("list is as fresh as the cluster", 1)
			if version < least {
				s.report.mismatch("list", fmt.Sprintf("%s without a resourceVersion is of version %d, and %d had been written before it was asked for", r, version, least), nil)
			}
		}
	}
	return nil
}

// bodies compares lists at one version with the API server's, byte for byte.
func (s *soak) bodies(ctx context.Context, random *rand.Rand) error {
	client := s.client(false)
	defer client.CloseIdleConnections()
	direct := s.direct()
	defer direct.CloseIdleConnections()
	for Sleep(ctx, between(random, bodyEvery/2, bodyEvery)) {
		r := resources[random.IntN(len(resources))]
		forms := []string{"application/json", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1", "application/vnd.kubernetes.protobuf"}
		if r == widgets {
			forms = forms[:2]
		}
		form := forms[random.IntN(len(forms))]
		_, version, err := s.list(ctx, client, s.url+r.path(url.Values{"resourceVersion": {"0"}, "limit": {"1"}}), forms[1])
		if err != nil {
			s.ended("list", err)
			continue
		}
		query := url.Values{"resourceVersion": {fmt.Sprint(version)}, "resourceVersionMatch": {"Exact"}}
		if random.IntN(2) == 0 {
			query.Set("limit", strconv.Itoa(1+random.IntN(200)))
		}
		ours, err := s.get(ctx, client, s.url+r.path(query), form, "")
		if err != nil {
			s.ended("body", err)
			continue
		}
		patience, cancel := context.WithTimeout(ctx, 10*time.Second)
		theirs, err := s.get(patience, direct, s.cp.URL()+r.path(query), form, s.cp.AdminConfig().BearerToken)
		cancel()
		if err != nil { // it is down, or has been compacted since
			s.ended("body, of the API server", unanswered(err))
			continue
		}
		s.report.count("body = the API server's, to the byte", 1)
		if !sameBody(ours, theirs) {
			s.report.mismatch("body", fmt.Sprintf("GET %s as %s has another answer than the API server's, from byte %d on:\n ours: %q\ntheirs: %q",
				r.path(query), form, differAt(ours, theirs), around(ours, theirs), around(theirs, ours)), nil)
		}
	}
	return nil
}

// token is a continue token.
var token = regexp.MustCompile(`eyJ2IjoibWV0YS5rOHMuaW8vdjEi[\w-]*`)

// sameBody compares byte for byte, except for the continue token: in it, an API server
// writes the start of the next page as /namespace/name if it answered from its cache,
// and as namespace/name if it read from etcd. Which one is not predictable.
func sameBody(ours, theirs []byte) bool {
	if bytes.Equal(ours, theirs) {
		return true
	}
	a, b := token.FindIndex(ours), token.FindIndex(theirs)
	if a == nil || b == nil || !bytes.Equal(ours[a[1]:], theirs[b[1]:]) {
		return false
	}
	if !bytes.HasPrefix(ours, []byte("k8s\x00")) && !bytes.Equal(ours[:a[0]], theirs[:b[0]]) {
		return false // in protobuf the length is in front of it, twice
	}
	one, err1 := base64.RawURLEncoding.DecodeString(string(ours[a[0]:a[1]]))
	other, err2 := base64.RawURLEncoding.DecodeString(string(theirs[b[0]:b[1]]))
	return err1 == nil && err2 == nil && bytes.Equal(bytes.Replace(one, []byte(`"start":"/`), []byte(`"start":"`), 1), other)
}

func differAt(a, b []byte) int {
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			return i
		}
	}
	return min(len(a), len(b))
}

func around(a, b []byte) string {
	at := differAt(a, b)
	return string(a[max(0, at-300):min(len(a), at+300)])
}
