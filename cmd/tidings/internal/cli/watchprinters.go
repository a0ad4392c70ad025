package cli

import (
	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/cli-runtime/pkg/printers"
	kubectlget "k8s.io/kubectl/pkg/cmd/get"
)

// watchPrinters are those of kubectl that watch has beside its own outputs.
type watchPrinters struct {
	columns   *kubectlget.CustomColumnsPrintFlags
	templates *genericclioptions.KubeTemplatePrintFlags
	names     *genericclioptions.NamePrintFlags
	events    bool
}

func newWatchPrinters() *watchPrinters {
	return &watchPrinters{
		columns:   kubectlget.NewCustomColumnsPrintFlags(),
		templates: genericclioptions.NewKubeTemplatePrintFlags(),
		names:     genericclioptions.NewNamePrintFlags(""),
	}
}

func (p *watchPrinters) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.BoolVar(&p.events, "output-watch-events", false, "give templates and columns the event, not only the object")
	f.BoolVar(&p.columns.NoHeaders, "no-headers", false, "print custom columns without headers")
	f.StringVar(p.templates.TemplateArgument, "template", "", "template or `file` for -o go-template and -o go-template-file")
}

// format returns the format of an output.
func (p *watchPrinters) format(output string) (eventFormat, error) {
	p.columns.TemplateArgument = *p.templates.TemplateArgument
	for _, flags := range []interface {
		ToPrinter(string) (printers.ResourcePrinter, error)
	}{p.templates, p.columns, p.names} {
		printer, err := flags.ToPrinter(output)
		switch {
		case err == nil:
			return printedBy(printer, p.events && output != "name"), nil
		case !genericclioptions.IsNoCompatiblePrinterError(err):
			return nil, err
		}
	}
	known := append(append([]string{}, watchOutputs...), p.names.AllowedFormats()...)
	known = append(append(known, p.templates.AllowedFormats()...), p.columns.AllowedFormats()...)
	return nil, unknownOutput(output, known...)
}
