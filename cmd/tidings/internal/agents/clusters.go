package agents

import (
	"slices"
	"strings"
)

// clusters lists the clusters, or the resources of one.
func (c *call) clusters() (*answer, error) {
	if c.texts["cluster"] != "" {
		return c.resources()
	}
	var about struct {
		History bool `json:"history"`
	}
	if _, err := c.fetch("/", nil, &about); err != nil {
		return nil, err
	}
	type state struct {
		Name    string `json:"name"`
		Default bool   `json:"default"`
		Health  string `json:"health"`
		Error   string `json:"error"`
	}
	var all struct {
		Data []state `json:"data"`
	}
	if _, err := c.fetch("/clusters", nil, &all); err != nil {
		if c.Options.Cluster == "" {
			return nil, err
		}
		// Rights on all clusters are those on the default one, which this may not be.
		var one struct {
			Data state `json:"data"`
		}
		path, err := c.path("")
		if err == nil {
			_, err = c.fetch(path, nil, &one)
		}
		if err != nil {
			return nil, err
		}
		all.Data = []state{one.Data}
	}
	a := c.answer()
	n := 0
	for _, one := range all.Data {
		if c.Only != nil && !slices.Contains(c.Only, one.Name) || !strings.Contains(one.Name, c.texts["filter"]) {
			continue
		}
		if n++; n == 1 {
			a.row([]string{"Cluster", "Health", "Default", "Problem"})
		}
		is := ""
		if one.Name == c.Options.Cluster || c.Options.Cluster == "" && one.Default {
			is = "default"
		}
		a.row([]string{one.Name, one.Health, is, one.Error})
	}
	past := "The server keeps no history: changes takes versions, and at is not possible."
	if about.History {
		past = "The server keeps a history: changes takes times, and at shows the past."
	}
	a.head = append([]string{plural(n, "cluster", "clusters") + ". " + past}, a.head...)
	a.then("ok and unused can be read; failing is not connected or not complete. clusters with a cluster lists its resources.")
	return a, nil
}

// resources lists the resources of a cluster.
func (c *call) resources() (*answer, error) {
	var out struct {
		Data struct {
			Health    string   `json:"health"`
			Error     string   `json:"error"`
			Available []string `json:"available"`
		} `json:"data"`
	}
	path, err := c.path("")
	if err == nil {
		_, err = c.fetch(path, nil, &out)
	}
	if err != nil {
		return nil, err
	}
	a := c.answer()
	var names []string
	for _, name := range out.Data.Available {
		if strings.Contains(name, strings.ToLower(c.texts["filter"])) {
			names = append(names, name)
		}
	}
	a.say("Cluster %s is %s. %d of %s shown.", quote(c.cluster()), quote(out.Data.Health), len(names), plural(len(out.Data.Available), "resource is", "resources are"))
	if out.Data.Error != "" {
		a.data("problem: " + out.Data.Error)
	}
	for part := range slices.Chunk(names, 6) {
		a.data(strings.Join(part, " "))
	}
	return a, nil
}
